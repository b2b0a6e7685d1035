package trace

import (
	"cmp"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/source"
)

// logSession logs the traced processes and how they are traced, and which sources are not attached
// and why. It returns the entries that the summary repeats.
func (o *Options) logSession(s *tracer.Session) (notes []summary.Note) {
	for _, change := range s.Changes() {
		notes = append(notes, logChange(change)...)
	}
	if pid := s.Process.PID; len(notes) == 0 && s.IsTraced(pid) {
		commandLine := cmp.Or(strings.Join(s.Process.Arguments, " "), s.Process.Command())
		notes = append(notes, summary.ProcessNote(growth.Selection{
			Reason: growth.SelectionAsked, PID: pid, Traced: commandLine,
		}))
		slog.Info(words.Note(notes[0]))
	}

	plan := summary.Note{Code: summary.NoteSampling, Plan: summary.Plan{
		IntervalBytes: uint64(o.Interval), Limit: s.Options.Overhead,
		DurationS:     summary.Seconds(time.Duration(o.Duration)),
		UntilSettledS: summary.Seconds(time.Duration(o.UntilSettled)),
		NoHeap:        !slices.Contains(o.Sources, "heap"),
	}}
	slog.Info(words.Note(plan))
	notes = append(notes, plan)
	for _, note := range o.allocatorNotes(s.Allocators()) {
		notes = append(notes, note)
		slog.Warn(words.Note(note))
	}

	for _, source := range s.Sources() {
		logSource(source)
	}
	return notes
}

// allocatorNotes are where mallocs limit the findings of the trace. Without a limit of the overhead
// there are no bursts.
func (o *Options) allocatorNotes(found []tracer.Allocator) (notes []summary.Note) {
	if o.Overhead == 0 {
		return nil
	}
	for _, f := range found {
		if f.Limit != growth.HeapUnlimited {
			notes = append(notes, summary.Note{Code: summary.NoteAllocator, Allocator: summary.Allocator{
				PID: f.PID, Name: f.Name, File: units.Name(path.Base(f.Path)), Limit: f.Limit,
			}})
		}
	}
	return notes
}

// logBudget logs the effect of the CPU budget on a trace that is meant to be exact.
func (o *Options) logBudget() {
	if o.Interval == 1 && o.Overhead != 0 && slices.Contains(o.Sources, "heap") {
		slog.Info(words.ExactInBursts(o.Overhead.Share()))
	}
}

// logChange logs a change of the process tree. It returns a note where that is which process is
// traced, and why.
func logChange(c tracer.Change) (notes []summary.Note) {
	text := words.TreeChange(c.TreeChange)
	if c.Err != nil {
		slog.Warn(fmt.Sprintf("%s: %v", text, c.Err))
		return nil
	}

	slog.Info(text)
	for _, source := range c.Sources {
		logSource(source)
	}
	if c.Event == growth.TreeSelected && c.Selection.Processes > 0 {
		notes = append(notes, summary.ProcessNote(c.Selection))
	}
	return notes
}

func logSource(source source.Status) {
	switch {
	case source.Off:
		slog.Debug(sourceText(source) + ": off")
	case !source.Attached:
		slog.Warn(fmt.Sprintf("%s is not attached: %s", sourceText(source), sourceReason(source)))
	case sourceReason(source) != "":
		slog.Warn(fmt.Sprintf("%s: %s", sourceText(source), sourceReason(source)))
	case len(source.Producers) > 0:
		slog.Info(sourceText(source) + " is attached " + words.ByProducers(source.Producers))
	}

	for _, detail := range source.Details {
		slog.Debug(fmt.Sprintf("%s: %s", sourceText(source), detail))
	}
}

// sourceText names a source.
func sourceText(source source.Status) string {
	if source.PID == 0 {
		return "source " + source.Name
	}
	return fmt.Sprintf("source %s of PID %d", source.Name, source.PID)
}

// sourceReason is why a source is not attached, or its gap; empty where there is nothing to report.
func sourceReason(s source.Status) string { return cmp.Or(words.SourceGap(s.Gap), s.Reason) }

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
		out.Changes = append(out.Changes,
			summary.OverheadChangeOf(c.At, heapModes[c.Mode], c.OverheadChange))
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
