package main

import (
	"fmt"
	"log/slog"
	"slices"

	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/source"
)

// logSources says what is traced, and what is not and why.
func logSources(s *tracer.Session) {
	taken := "every allocation"
	if interval := s.Overhead().Interval; interval > 1 {
		taken = "one sample every " + units.Bytes(float64(interval))
	}
	if limit := s.Options.Overhead; limit > 0 {
		taken += ", overhead up to " + units.ExactPercent(limit)
	}
	does := "following" // what it has launched
	if s.IsTraced(s.Process.PID) {
		does = "tracing"
	}
	slog.Info(fmt.Sprintf("%s %d (%s), %s", does, s.Process.PID, s.Process.Command(), taken))
	for _, change := range s.Changes() {
		logChange(change)
	}
	for _, source := range s.Sources() {
		logSource(source)
	}
}

// logBudget says what the budget can do to a trace that is meant to be exact.
func (f traceFlags) logBudget() {
	if f.interval == 1 && f.overhead != 0 && slices.Contains(f.sources, "heap") {
		slog.Info(fmt.Sprintf("every allocation is taken while heap is probed, which it is in windows where it would take more than %s of the CPU time: "+
			"--overhead off probes every call", units.ExactPercent(f.overhead.share())))
	}
}

// logChange says what has happened in the tree.
func logChange(c tracer.Change) {
	if c.Err != nil {
		slog.Warn(fmt.Sprintf("%s: %v", c.Text, c.Err))
		return
	}
	slog.Info(c.Text)
	for _, source := range c.Sources {
		logSource(source)
	}
}

func logSource(source source.Status) {
	switch {
	case source.Off:
		slog.Debug(sourceText(source) + ": off")
	case !source.Attached:
		slog.Warn(fmt.Sprintf("%s is not attached: %s", sourceText(source), source.Reason))
	case source.Reason != "":
		slog.Warn(fmt.Sprintf("%s: %s", sourceText(source), source.Reason))
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
