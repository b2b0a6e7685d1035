package trace

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
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
		notes = append(notes, words.TracedProcess(pid, commandLine))
		slog.Info(notes[0].Text)
	}

	plan := words.Plan{
		Interval: uint64(o.Interval), Limit: s.Options.Overhead,
		Duration: time.Duration(o.Duration), UntilSettled: time.Duration(o.UntilSettled),
		NoHeap: !slices.Contains(o.Sources, "heap"),
	}.Note()
	slog.Info(plan.Text)
	notes = append(notes, plan)
	for _, note := range record.AllocatorNotes(s.Allocators(), o.Overhead != 0) {
		notes = append(notes, note)
		slog.Warn(note.Text)
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
