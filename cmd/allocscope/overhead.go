package main

import (
	"log/slog"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead"
)

// overhead gives what tracing has cost, and says what was changed since the last call.
func (r *recorder) overhead() *summary.Overhead {
	o := r.session.Overhead()
	r.changes = logOverhead(o.Changes, r.changes)
	return overheadOf(o)
}

// logOverhead says the changes after those that have been said, and gives how many have been by now.
func logOverhead(changes []overhead.Change, said int) int {
	for _, change := range changes[min(said, len(changes)):] {
		slog.Info(change.Text)
	}
	return len(changes)
}

// overheadOf is what tracing has cost in the form of the summary. Without a limit nobody has measured what a probe costs.
func overheadOf(o overhead.Overhead) *summary.Overhead {
	out := &summary.Overhead{
		Limit: o.Limit, OwnS: summary.Seconds(o.Own), TracedS: summary.Seconds(o.Traced), Mode: string(o.Mode),
		Bursts: o.Bursts, OpenS: summary.Seconds(o.Open), IntervalBytes: o.Interval,
		StepBeforeS: knownTime(o.StepBefore), StepBetweenS: knownTime(o.StepBetween), StepSinceS: knownTime(o.StepSince),
	}
	if o.Limit > 0 && o.Traced > 0 {
		share, inProbes := o.Share(), summary.Seconds(o.InProbes)
		out.Share, out.InProbesS = &share, &inProbes
	}
	for _, c := range o.Changes {
		out.Changes = append(out.Changes, summary.OverheadChange{AtS: summary.Seconds(c.At), Mode: string(c.Mode), Text: c.Text})
	}
	return out
}

// inWindows adds how a snapshot knows of heap memory.
func inWindows(o *summary.Overhead, w growth.Watch) *summary.Overhead {
	if w.Windows > 0 {
		o.LagS = summary.Seconds(w.Lag)
	}
	return o
}

// overheadComments are what a profile must say of how heap was watched.
func overheadComments(o *summary.Overhead, w growth.Watch) []string {
	comments := []string{words.HeapMode(o.Mode)}
	if from := words.FromBursts(o); from != "" {
		comments = append(comments, "holders of heap memory are from "+from)
	}
	if w.Blind != "" {
		comments = append(comments, "whether heap memory is alive is not seen from outside: "+w.Blind)
	}
	return comments
}

// knownTime is a time in seconds, exactly; nil for 0.
func knownTime(d time.Duration) *float64 {
	if d <= 0 {
		return nil
	}
	seconds := d.Seconds()
	return &seconds
}

// sampledEvery is the mean number of bytes for which a sample of a snapshot stands.
func sampledEvery(s *growth.Snapshot) uint64 {
	if s.Watch.Windows > 0 && s.Watch.Factor > 1 {
		return uint64(float64(max(s.Interval, 1)) * min(s.Watch.Factor, 1e9))
	}
	return max(s.Interval, 1)
}
