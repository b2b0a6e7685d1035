package tracer

import (
	"cmp"
	"time"

	"github.com/allocscope/allocscope/tracer/kernel"
)

// A clock counts from the first target on, or goes on from an earlier trace.
type clock struct {
	earlier uint64 // Options.Started
	started uint64 // when Elapsed is 0: ns, CLOCK_MONOTONIC
	opened  uint64 // when tracing started; 0: it has not
}

// startClock starts the clock with the first target, or without one.
func (c *clock) startClock() {
	if c.opened == 0 {
		c.opened = kernel.Monotonic()
		c.started = cmp.Or(c.earlier, c.opened)
	}
}

// Elapsed returns the time since tracing started, or since Options.Started; 0 before.
func (c *clock) Elapsed() time.Duration {
	started := cmp.Or(c.started, c.earlier)
	if started == 0 {
		return 0
	}
	return time.Duration(kernel.Monotonic() - started)
}

// Started returns when Elapsed is 0, in ns of CLOCK_MONOTONIC, as Options.Started.
func (c *clock) Started() uint64 { return c.started }

// Opened returns Elapsed when tracing started: 0, unless Options.Started is set.
func (c *clock) Opened() time.Duration { return time.Duration(c.opened - c.started) }

// sinceOpened returns the time since tracing started.
func (c *clock) sinceOpened() time.Duration { return c.Elapsed() - c.Opened() }
