package record

import (
	"cmp"
	"time"

	"github.com/allocscope/allocscope/growth/component"
	"github.com/allocscope/allocscope/growth/verdict"
)

// Options choose the target and the length of a trace, and the criteria of its judgement.
type Options struct {
	PID           int           // process to trace, as the user named it
	Limit         int64         // bytes of memory, a limit that allocscope cannot see; 0: none
	Duration      time.Duration // 0: until the context ends
	UntilSettled  time.Duration // the longest trace; 0: it ends after Duration
	Warmup        time.Duration // growth counts from then on; 0: detected
	Tolerable     float64       // growth that is harmless, in bytes per second
	SnapshotEvery time.Duration // 0: by the duration
	HasBudget     bool          // the overhead has a limit: the heap may be sampled in bursts
	Keepers       bool          // objects are counted, and searched for who keeps them
	Components    *component.Rules
	Launched      bool // the trace has started the process
	EndsTarget    bool // who runs the trace ends the process after it

	// Speed is how many times faster than a real trainer the process lives. It is 1 but in tests.
	Speed float64

	Version     string   // of allocscope, for the summary and the profiles
	CommandLine []string // of allocscope
}

// longest is the longest time that a trace may take; 0: until its context ends.
func (o *Options) longest() time.Duration { return cmp.Or(o.UntilSettled, o.Duration) }

// samplePeriod is the time between two rows of the timeline.
func (o *Options) samplePeriod() time.Duration {
	return max(100*time.Millisecond, time.Duration(float64(time.Second)/o.Speed))
}

// isRechecked is true of a trace that is judged periodically, because it has no fixed end.
func (o *Options) isRechecked() bool { return o.Duration == 0 || o.UntilSettled != 0 }

// criteria of the judgement: stricter where a trace is judged periodically.
func (o *Options) criteria() verdict.Criteria {
	c := verdict.InSeconds().Faster(o.Speed)
	if o.isRechecked() {
		return c.Repeated()
	}
	return c
}

// firstCheck returns criteria by whose MinPlateauLength a trace is judged first: with
// --until-settled after its duration.
func (o *Options) firstCheck() verdict.Criteria {
	c := o.criteria()
	if o.UntilSettled != 0 {
		c.MinPlateauLength = o.Duration.Seconds()
	}
	return c
}
