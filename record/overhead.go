package record

import (
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead"
)

// A meter reads the cost and the losses of a trace: the session's, with the recorder's own.
type meter struct {
	session   Session
	snapshots *snapshotSeries
	objects   *objectWatch
	report    func(Event)
	reported  int // changes of the overhead controller
}

// overhead returns the cost of tracing so far, and reports the changes since the last call.
func (m *meter) overhead() *summary.Overhead {
	o := m.session.Overhead()
	for _, change := range o.Changes[min(m.reported, len(o.Changes)):] {
		m.report(OverheadChange{change.OverheadChange})
	}
	m.reported = len(o.Changes)

	out := overheadSummary(o)
	out.LeftOutSnapshots = m.snapshots.leftOut
	out.SearchS = summary.Seconds(m.session.ObjectsCPUTime())
	out.SearchAtEndS = summary.Seconds(m.objects.atEnd)
	return out
}

// counters returns the events and the losses so far.
func (m *meter) counters() (growth.Events, growth.Losses, error) {
	events, losses, err := m.session.Counters()
	losses.Add(growth.LossIdleHoldings, "", m.snapshots.idleHoldings)
	return events, losses, err
}

// overheadSummary is the overhead in the form of the summary. Without a limit the cost of a probe
// is not measured, so that the slow-down is unknown.
func overheadSummary(o overhead.Overhead) *summary.Overhead {
	out := &summary.Overhead{
		Limit: o.Limit, OwnS: summary.Seconds(o.Own), TracedS: summary.Seconds(o.Traced),
		StartS: summary.Seconds(o.Start), EndS: summary.Seconds(o.End),
		Mode: o.Mode, Bursts: o.Bursts, OpenS: summary.Seconds(o.Open),
		IntervalBytes: o.Interval, StepBeforeS: knownSeconds(o.StepBefore),
		StepBetweenS: knownSeconds(o.StepBetween), StepSinceS: knownSeconds(o.StepSince),
		LeftOutChanges: o.LeftOut,
	}

	if o.Limit > 0 && o.Elapsed > 0 {
		out.Slowdown, out.InProbesS = new(o.Slowdown()), new(summary.Seconds(o.InProbes))
		out.OwnLimitS = summary.Seconds(o.OwnLimit())
		out.OwnExcessS = summary.Seconds(o.OwnExcess())
		if o.SeesWaits {
			out.WaitedS = new(summary.Seconds(o.Waited))
		}
		out.ShimS = knownSeconds(o.InShim)
	}

	for _, c := range o.Changes {
		out.Changes = append(out.Changes,
			summary.OverheadChangeOf(c.At, c.Mode, c.OverheadChange))
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
	return new(d.Seconds())
}

// effectiveInterval is the mean number of bytes that a sample of a snapshot represents.
func effectiveInterval(s *growth.Snapshot) uint64 {
	if s.Heap.Bursts > 0 && s.Heap.Extrapolation > 1 {
		return uint64(float64(max(s.Interval, 1)) * min(s.Heap.Extrapolation, 1e9))
	}
	return max(s.Interval, 1)
}
