package words

import (
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestRowsNote(t *testing.T) {
	row := func(low int64) summary.Accumulation { return summary.Accumulation{RateLow: &low} }
	off := []summary.Source{
		{Name: "heap", State: summary.SourceOff}, {Name: "fault", State: summary.SourceAttached},
	}
	for want, s := range map[string]summary.Summary{
		"since the baseline.":          {},
		"source heap was not attached": {Sources: off},
		"Shares are of all stacks that grew": {
			Accumulating: []summary.Accumulation{row(1), row(-1)}, Sources: off,
		},
		"None of it is proven": {Accumulating: []summary.Accumulation{row(0), row(-1)}},
		"grew.":                {Accumulating: []summary.Accumulation{{}}},
		"grew. But memory as a whole does not grow.": {
			Accumulating: []summary.Accumulation{{}}, Verdict: summary.Verdict{Class: verdict.ClassPlateau},
		},
	} {
		note := RowsNote(&s)
		if !strings.Contains(note, want) ||
			strings.Contains(note, "proven") != strings.Contains(want, "proven") ||
			strings.Contains(note, "attached") != strings.Contains(want, "attached") {
			t.Errorf("%q, want %q", note, want)
		}
	}
}

func TestConditionNotes(t *testing.T) {
	for name, c := range map[string]struct {
		condition *summary.Condition
		want      []string
	}{
		"ran": {},
		"thawed": {&summary.Condition{FrozenS: 7}, []string{
			"the process was frozen by its cgroup (docker pause?) for 7s of the trace, " +
				"and cannot grow meanwhile",
		}},
		"is stopped": {&summary.Condition{Halt: growth.HaltStopped, StoppedS: 15}, []string{
			"the process was stopped by a signal or a debugger for 15s of the trace, " +
				"and cannot grow meanwhile; it still is",
		}},
		"main thread": {&summary.Condition{RemainingThreads: 2}, []string{
			"its main thread has ended; 2 threads live",
		}},
	} {
		mustBe(t, conditionNotes(c.condition), c.want, name)
	}
}

// limitedSummary has every limit, except of GPU memory.
func limitedSummary() *summary.Summary {
	s := &summary.Summary{
		IntervalBytes: 512 << 10, DurationS: 300, Process: summary.Process{PID: 1},
		Processes: []summary.TreeProcess{{PID: 2}}, Groups: []summary.Group{{Processes: 3}},
		Residents: []summary.Resident{{Process: 1, Scanned: 0.1}},
		Mappings:  summary.Mappings{UnmeasuredBytes: 1, UnknownBytes: 1},
		Sources: []summary.Source{
			{Name: "heap", State: summary.SourceAttached},
			{Name: "step", State: summary.SourceOff, PID: 7},
			{Name: "cuda", State: summary.SourceOff},
		},
		Breakdown: []summary.BreakdownRow{
			{Process: 1, Kind: growth.KindBeforeTracing, EndBytes: 1 << 20},
			{Process: 1, Kind: growth.KindSwapped, EndBytes: 1 << 20},
			{Process: 1, Kind: growth.KindDeviceFile, EndBytes: 1 << 20},
		},
	}
	s.Class = verdict.ClassSuspected
	return s
}

// Each limit is said of the traces alone that it is true of.
func TestLimits(t *testing.T) {
	for says, edit := range map[string]func(*summary.Summary){
		"from one sample every":                 func(s *summary.Summary) { s.Sources[0].State = summary.SourceOff },
		"before tracing started":                func(s *summary.Summary) { s.Breakdown = s.Breakdown[1:] },
		"are swapped out":                       func(s *summary.Summary) { s.Breakdown[1].Process = 2 },
		"GPU memory is not traced":              func(s *summary.Summary) { s.GPUMemory = make([]summary.GPUMemory, 1) },
		"4 processes of the tree":               func(s *summary.Summary) { s.Groups = nil },
		"their memory, without stacks":          func(s *summary.Summary) { s.Groups = nil },
		"of the pages were scanned":             func(s *summary.Summary) { s.Residents[0].Scanned = 0.9999 },
		"mappings were not scanned":             func(s *summary.Summary) { s.Mappings.UnmeasuredBytes = 0 },
		"without a traced system call":          func(s *summary.Summary) { s.Mappings.UnknownBytes = 0 },
		"A trace of this length":                func(s *summary.Summary) { s.DurationS = 4 * 3600 },
		"Without source step in PID 7 training": func(s *summary.Summary) { s.Sources[1].State = summary.SourceAttached },
	} {
		s := limitedSummary()
		isSaid := func() bool {
			return slices.ContainsFunc(Limits(s),
				func(limit string) bool { return strings.Contains(limit, says) })
		}
		before := isSaid()
		if edit(s); !before || isSaid() {
			t.Errorf("%q: %v, then %v", says, before, isSaid())
		}
	}

	t.Run("GPU memory without stacks", func(t *testing.T) {
		const says = "Without source cuda GPU memory has no stacks."
		s := limitedSummary()
		if slices.Contains(Limits(s), says) {
			t.Error("where there is none")
		}
		s.GPUMemory = make([]summary.GPUMemory, 1)
		if !slices.Contains(Limits(s), says) {
			t.Errorf("%q", Limits(s))
		}
	})
}

// TestHeapNote compares the notes on a heap that is not seen, or not all of it.
func TestHeapNote(t *testing.T) {
	of := func(
		state string, failure growth.SourceFailure, gap growth.SourceGap,
	) summary.Source {
		return summary.Source{Name: "heap", PID: 7, State: state, SourceFailure: failure, Gap: gap}
	}
	none := growth.SourceFailure{}
	inGo := growth.SourceFailure{File: "/bin/p", Detail: growth.AllocatorGo}
	for _, c := range []struct {
		source summary.Source
		want   string
	}{
		{of(summary.SourceAttached, none, ""), ""},
		{of(summary.SourceAttached, inGo, growth.GapAllocator), goAllocator},
		{of(summary.SourceFailed, growth.SourceFailure{Reason: growth.SourceGo}, ""), goAllocator},
		{
			of(summary.SourceFailed, growth.SourceFailure{Reason: growth.SourceNoAllocator}, ""),
			"malloc was not traced (no malloc symbol in any of its files (a static, stripped " +
				"program?)). Fix: allocscope doctor 7",
		},
		{of(summary.SourceOff, none, ""), ""},
	} {
		s := &summary.Summary{Process: summary.Process{PID: 7}, Sources: []summary.Source{c.source}}
		if got := strings.Join(heapNote(s, Place{}), "; "); got != c.want {
			t.Errorf("%+v: %q, want %q", c.source, got, c.want)
		}
	}
}
