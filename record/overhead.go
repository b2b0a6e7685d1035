package record

import (
	"log/slog"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead"
)

// overhead returns the cost of tracing so far, and logs the changes since the last call.
func (r *Recorder) overhead() *summary.Overhead {
	o := r.session.Overhead()
	r.loggedChanges = logOverheadChanges(o.Changes, r.loggedChanges)
	out := overheadSummary(o)
	out.LeftOutSnapshots = r.snapshots.leftOut
	out.SearchAtEndS = summary.Seconds(r.objects.atEnd)
	out.OwnS = max(0, out.OwnS-out.SearchAtEndS)
	return out
}

// logOverheadChanges logs the changes after the logged ones. It returns how many are logged now.
func logOverheadChanges(changes []overhead.Change, logged int) int {
	for _, change := range changes[min(logged, len(changes)):] {
		slog.Info(words.OverheadChange(change.OverheadChange))
	}
	return len(changes)
}

// heapModes are the modes of source heap as the summary names them.
var heapModes = map[overhead.HeapMode]string{
	overhead.HeapFull:   summary.HeapFull,
	overhead.HeapBursts: summary.HeapBursts,
	overhead.HeapOff:    summary.HeapOff,
}

// overheadSummary is the overhead in the form of the summary. Without a limit the cost of a probe
// is not measured, so that the slow-down is unknown.
func overheadSummary(o overhead.Overhead) *summary.Overhead {
	out := &summary.Overhead{
		Limit: o.Limit, OwnS: summary.Seconds(o.Own), TracedS: summary.Seconds(o.Traced),
		Mode: heapModes[o.Mode], Bursts: o.Bursts, OpenS: summary.Seconds(o.Open),
		IntervalBytes: o.Interval, StepBeforeS: knownSeconds(o.StepBefore),
		StepBetweenS: knownSeconds(o.StepBetween), StepSinceS: knownSeconds(o.StepSince),
		LeftOutChanges: o.LeftOut,
	}

	if o.Limit > 0 && o.Elapsed > 0 {
		slowdown, inProbes := o.Slowdown(), summary.Seconds(o.InProbes)
		out.Slowdown, out.InProbesS = &slowdown, &inProbes
		out.OwnLimitS = summary.Seconds(o.OwnLimit())
	}

	for _, c := range o.Changes {
		out.Changes = append(out.Changes, summary.OverheadChange{
			AtS: summary.Seconds(c.At), Mode: heapModes[c.Mode],
			Text: words.OverheadChange(c.OverheadChange),
		})
	}

	return out
}

// withLag adds the lag of a heap that is sampled in bursts.
func withLag(o *summary.Overhead, coverage growth.HeapCoverage) *summary.Overhead {
	if coverage.Bursts > 0 {
		o.LagS = summary.Seconds(coverage.Lag)
	}
	return o
}

// knownSeconds returns a time in seconds, exactly; nil for 0.
func knownSeconds(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	seconds := d.Seconds()
	return &seconds
}

// effectiveInterval is the mean number of bytes that a sample of a snapshot represents.
func effectiveInterval(s *growth.Snapshot) uint64 {
	if s.Heap.Bursts > 0 && s.Heap.Extrapolation > 1 {
		return uint64(float64(max(s.Interval, 1)) * min(s.Heap.Extrapolation, 1e9))
	}
	return max(s.Interval, 1)
}
