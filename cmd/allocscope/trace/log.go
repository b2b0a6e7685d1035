package trace

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/record"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/source"
)

// logSession logs the traced processes and how they are traced, and which sources are not attached
// and why. It returns the entries that the summary repeats.
func (o *Options) logSession(s *tracer.Session) (notes []summary.Note) {
	for _, change := range s.Changes() {
		logChange(change)
		notes = append(notes, record.ChangeNotes(change)...)
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
	for _, note := range record.AllocatorNotes(s.Allocators(), o.Overhead != 0) {
		notes = append(notes, note)
		slog.Warn(words.Note(note))
	}

	for _, source := range s.Sources() {
		logSource(source)
	}
	return notes
}

// logBudget logs the effect of the CPU budget on a trace that is meant to be exact.
func (o *Options) logBudget() {
	if o.Interval == 1 && o.Overhead != 0 && slices.Contains(o.Sources, "heap") {
		slog.Info(words.ExactInBursts(o.Overhead.Share()))
	}
}

// logChange logs a change of the process tree.
func logChange(c tracer.Change) {
	if c.Err != nil {
		slog.Warn(fmt.Sprintf("%s: %v", words.TreeChange(c.TreeChange), c.Err))
		return
	}

	slog.Info(words.TreeChange(c.TreeChange))
	for _, source := range c.Sources {
		logSource(source)
	}
}

func logSource(source source.Status) {
	switch {
	case source.Off:
		slog.Debug(record.SourceName(source) + ": off")
	case !source.Attached:
		slog.Warn(fmt.Sprintf("%s is not attached: %s", record.SourceName(source), record.SourceReason(source)))
	case record.SourceReason(source) != "":
		slog.Warn(fmt.Sprintf("%s: %s", record.SourceName(source), record.SourceReason(source)))
	case len(source.Producers) > 0:
		slog.Info(record.SourceName(source) + " is attached " + words.ByProducers(source.Producers))
	}

	for _, detail := range source.Details {
		slog.Debug(fmt.Sprintf("%s: %s", record.SourceName(source), detail))
	}
}

// A reporter shows the progress of a trace, and logs its events.
type reporter struct {
	display     Display
	save        func(*record.Result) // writes a result while the trace runs
	memoryLimit int64                // of allocscope, that the user has set, in bytes
}

func (r *reporter) report(event record.Event) {
	switch e := event.(type) {
	case record.Progress:
		r.display.Show(e)
	case record.SnapshotTaken:
		logSnapshot(e)
		limitMemory(r.memoryLimit)
	case record.TreeChange:
		logChange(e.Change)
	case record.OverheadChange:
		slog.Info(words.OverheadChange(e.OverheadChange))
	case record.Warning:
		slog.Warn(words.Note(e.Note))
	case record.ObjectsRead:
		logObjects(e)
	case record.SlowSearch:
		slog.Info("searching who keeps what grows")
	case record.ResultSoFar:
		r.save(e.Result)
	case record.FileFailed:
		slog.Error(e.Err.Error())
	default:
		logCheck(event)
	}
}

// logCheck logs the result of a periodic judgement.
func logCheck(event record.Event) {
	switch e := event.(type) {
	case record.LeakFound:
		line, suspects := headline(&e.Process), e.Suspects
		if e.OnGPU {
			line, suspects = record.GPUHeadline(&e.Process), e.GPU.Suspects
		}
		if most := words.MostBy(suspects); most != "" { // the code that accumulates most
			line += "; " + most
		}
		slog.Warn(line)
	case record.LossProven:
		slog.Warn(words.LossProven(e.Proof, e.Type))
	case record.LimitNear:
		found := summary.VerdictOf(e.Verdict, summary.AxisSeconds)
		slog.Warn(words.Headline(found) + "; " + words.LimitLine(found, words.AtLimit))
	case record.Settled:
		slog.Info(words.Settled(headline(&e.Process)))
	case record.Unsettled:
		slog.Info(words.GoesOn(headline(&e.Process), e.Next, e.End))
	}
}

func headline(p *conclude.Process) string {
	return words.Headline(summary.VerdictOf(p.Verdict, summary.AxisSeconds))
}

func logSnapshot(s record.SnapshotTaken) {
	if s.InSpike {
		slog.Debug(fmt.Sprintf("snapshot in a spike at %s, in %s", units.Duration(s.Elapsed), s.Took))
		return
	}
	slog.Debug(fmt.Sprintf("snapshot at %s of %d live samples, %d stacks in %s",
		units.Duration(s.Elapsed), s.LiveObjects, len(s.Holdings), s.Took))
}

func logObjects(read record.ObjectsRead) {
	if read.Err != nil {
		slog.Debug("read objects: " + read.Err.Error())
	}
	for _, c := range read.Censuses {
		slog.Debug(fmt.Sprintf("census of PID %d at %s: %d types, %.0f%% of the memory read, in %s",
			c.PID, units.Duration(c.Elapsed), len(c.Types), 100*c.Share, c.Took))
	}
}
