package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
)

func sourcesOf(s *summary.Summary) []sourceView {
	var sources []sourceView
	for _, source := range s.Sources {
		pid := "all"
		if source.PID != 0 {
			pid = fmt.Sprint(source.PID)
		}
		sources = append(sources, sourceView{source.Name, pid, source.State, words.SourceReason(source)})
	}

	return sources
}

// setupOf has the facts needed to repeat the trace.
func setupOf(s *summary.Summary) []fact {
	var attached []string
	for _, source := range s.Sources {
		if source.State == summary.SourceAttached && !slices.Contains(attached, source.Name) {
			attached = append(attached, source.Name)
		}
	}

	facts := []fact{
		{"allocscope", s.Version, ""},
		{"Kernel", s.Kernel, s.Architecture},
		{"Sampling", words.Sampling(s.IntervalBytes), ""},
		{"Overhead", words.OverheadLimit(s.Overhead), ""},
		{"Sources", strings.Join(attached, ", "), ""},
		{
			"Started", s.Started.Format("2006-01-02 15:04:05 MST"),
			"for " + units.Seconds(s.DurationS),
		},
		{"Program", s.Process.Executable, ""},
	}
	if software := words.Software(s); software != "" {
		facts = append(facts, fact{"Software", software, ""})
	}
	if c := s.ContinuedFrom; c != nil {
		facts = append(facts, fact{
			"Continues", c.Folder, "after a gap of " + units.Seconds(c.GapS) + "; stacks count from " +
				units.Seconds(c.BeganS),
		})
	}
	return facts
}

// pprofCommandsOf are commands for the folder of the report.
func pprofCommandsOf(data pageData) []string {
	if len(data.GPUFlames) == 0 {
		return pprofCommands
	}
	return append(slices.Clone(pprofCommands),
		"go tool pprof -top -sample_index=device_space "+folder.GrowthFile)
}

var pprofCommands = []string{
	"go tool pprof -http=: " + folder.GrowthFile,
	"go tool pprof -top -tagfocus=trend=accumulating " + folder.GrowthFile,
	"go tool pprof -top -tagroot=component " + folder.GrowthFile,
	"go tool pprof -top -diff_base=" + folder.WarmupFile + " " + folder.PlateauFile,
}

// probingOf returns the times when the heap was sampled in bursts, or not at all: between the
// changes, wherever the mode is not full.
func probingOf(s *summary.Summary) []phaseBand {
	bands := []phaseBand{}
	if s.Overhead == nil || !words.HeapKnown(s) {
		return bands
	}

	mode, from := s.Overhead.Mode, s.BeganS()
	if len(s.Overhead.Changes) > 0 {
		mode = growth.HeapFull
	}

	until := func(at float64) {
		if at > from && (mode == growth.HeapBursts || mode == growth.HeapOff) {
			bands = append(bands, phaseBand{span{from, at}, string(mode), words.HeapMode(mode)})
		}
	}

	for _, c := range s.Overhead.Changes {
		if c.Mode != mode {
			until(c.AtS)
			mode, from = c.Mode, c.AtS
		}
	}

	if s.Overhead.LeftOutChanges == 0 { // else it is unknown from the last one on
		until(s.DurationS)
	}
	return bands
}

// changesOf are the changes of the probes, by the mode where the mode changed.
func changesOf(s *summary.Summary) []markLine {
	lines, mode := []markLine{}, growth.HeapFull
	for _, c := range changesIn(s) {
		text := words.OverheadChange(c.OverheadChange)
		if c.Mode != mode {
			text = words.HeapMode(c.Mode)
		}
		mode = c.Mode
		lines = append(lines, markLine{c.AtS, text})
	}

	return lines
}

// changesIn are the changes of the summary.
func changesIn(s *summary.Summary) []summary.OverheadChange {
	if s.Overhead == nil {
		return nil
	}
	return s.Overhead.Changes
}

// overheadFacts is the overhead, if it was measured.
func overheadFacts(s *summary.Summary) []fact {
	slowdown, _ := words.OverheadParts(s)
	if slowdown == "" {
		return nil
	}
	return []fact{{"Slow-down", slowdown, "(" + words.OverheadLimit(s.Overhead) + ")"}}
}
