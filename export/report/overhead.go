package report

import (
	"fmt"
	"strings"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/export/words"
)

// probingOf is when source heap was watched in windows, or not: what its changes leave between each two of the full mode.
func probingOf(s *export.Summary) []phaseBand {
	bands := []phaseBand{}
	if s.Overhead == nil || !words.HeapKnown(s) {
		return bands
	}
	mode, from := s.Overhead.Mode, 0.0
	if len(s.Overhead.Changes) > 0 {
		mode = export.HeapFull
	}
	until := func(at float64) {
		if at > from && (mode == export.HeapWindows || mode == export.HeapOff) {
			bands = append(bands, phaseBand{stretch{from, at}, mode, words.HeapMode(mode)})
		}
	}
	for _, c := range s.Overhead.Changes {
		if c.Mode != mode {
			until(c.AtS)
			mode, from = c.Mode, c.AtS
		}
	}
	until(s.DurationS)
	return bands
}

// changesOf are the changes in what is watched, in a few words where it is the mode.
func changesOf(s *export.Summary) []markLine {
	lines, mode := []markLine{}, export.HeapFull
	for _, c := range changesIn(s) {
		text := c.Text
		if c.Mode != mode {
			text = words.HeapMode(c.Mode)
		}
		mode = c.Mode
		lines = append(lines, markLine{c.AtS, text})
	}
	return lines
}

// changesIn are the changes in what is watched, as the summary has them.
func changesIn(s *export.Summary) []export.OverheadChange {
	if s.Overhead == nil {
		return nil
	}
	return s.Overhead.Changes
}

// overheadFacts are what tracing cost, where that was measured: one.
func overheadFacts(s *export.Summary) []fact {
	o := s.Overhead
	if o == nil || o.Share == nil {
		return nil
	}
	notes := []string{"of the traced CPU time, " + words.OverheadLimit(o)}
	if heap := words.HeapWatched(s); heap != "" {
		notes = append(notes, "heap "+heap)
	}
	if step := words.StepLine(o); step != "" {
		notes = append(notes, step)
	}
	return []fact{{"Overhead", words.Percent(*o.Share), strings.Join(notes, "; ")}}
}

// windowLimits say what is not known where heap was not watched all the time.
func windowLimits(s *export.Summary) []string {
	var limits []string
	o := s.Overhead
	if from := words.FromWindows(o); from != "" {
		limits = append(limits, fmt.Sprintf("Holders of heap memory are known from %s. --overhead with more, or off, watches more of it.", from))
	}
	if o != nil && o.Mode == export.HeapOff && len(o.Changes) > 0 && words.HeapKnown(s) {
		limits = append(limits, "At last heap was not watched, as that would have cost more than the limit: nobody is named for what it gained then.")
	}
	return limits
}
