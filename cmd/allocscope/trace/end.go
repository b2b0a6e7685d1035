package trace

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth/conclude"
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
func (r *Recorder) firstCheck() verdict.Criteria {
	c := r.criteria()
	if r.options.UntilSettled != 0 {
		c.MinPlateauLength = time.Duration(r.options.Duration).Seconds()
	}
	return c
}

// settle ends a trace whose verdicts on RSS and on GPU memory are settled: a longer one would not
// change them. Otherwise it logs until when the trace goes on.
func (r *Recorder) settle(t *conclude.Trace, all []conclude.Process) {
	r.settled = true
	for i := range all {
		t.AddChecks(&all[i])
		r.settled = r.settled && (all[i].GPU == nil || all[i].GPU.Longer == 0)
	}
	main := conclude.MainOf(all)
	r.settled = r.settled && main.Longer == 0

	headline := words.Headline(summary.VerdictOf(main.Verdict, summary.AxisSeconds))
	if r.settled {
		slog.Info(words.Settled(headline))
		return
	}
	next := r.began + time.Duration(r.rechecks.Next()*float64(time.Second))
	slog.Info(words.GoesOn(headline, next, r.End()))
}

// longest is the longest time that a trace may take; 0: until Ctrl-C.
func (o *Options) longest() flagvalue.Duration { return cmp.Or(o.UntilSettled, o.Duration) }
