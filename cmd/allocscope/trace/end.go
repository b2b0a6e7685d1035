package trace

import (
	"cmp"
	"time"

	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/growth/verdict"
)

const (
	// defaultUntilSettled is the longest trace of --until-settled, and defaultDuration its first
	// length where no other is given.
	defaultUntilSettled = "1h"
	defaultDuration     = 5 * time.Minute

	// minExtension is the least by which a trace is extended at a time.
	minExtension = 5 * time.Minute
)

// isRechecked is true of a trace that is judged periodically, because it has no fixed end.
func (o *Options) isRechecked() bool { return o.Duration == 0 || o.UntilSettled != 0 }

// setEnd sets the end by the options.
func (r *Recorder) setEnd() {
	if length := r.options.longest(); length != 0 {
		r.end.Store(int64(r.began + time.Duration(length)))
	}
}

// End returns Elapsed when the trace ends, at the latest; 0: it ends by Ctrl-C.
func (r *Recorder) End() time.Duration { return time.Duration(r.end.Load()) }

// Extension is by how much Extend extends the trace: half of its first duration, or five minutes if
// that is more. 0: it has no end.
func (r *Recorder) Extension() time.Duration {
	if r.End() == 0 {
		return 0
	}
	return max(minExtension, time.Duration(r.options.Duration)/2)
}

// Extend moves the end of a trace that has one. It may be called from any goroutine.
func (r *Recorder) Extend() {
	if by := r.Extension(); by != 0 {
		r.end.Add(int64(by))
	}
}

// firstCheck returns criteria by whose MinPlateauLength a trace is judged first: with
// --until-settled after its duration.
func (o *Options) firstCheck() verdict.Criteria {
	c := o.criteria()
	if o.UntilSettled != 0 {
		c.MinPlateauLength = time.Duration(o.Duration).Seconds()
	}
	return c
}

// longest is the longest time that a trace may take; 0: until Ctrl-C.
func (o *Options) longest() flagvalue.Duration { return cmp.Or(o.UntilSettled, o.Duration) }
