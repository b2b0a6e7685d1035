package words

import (
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/verdict"
)

func TestUndecided(t *testing.T) {
	undecided := func(
		reason growth.UndecidedReason, why string, longerS *float64,
	) summary.Accumulation {
		return summary.Accumulation{
			Function: "f", Kind: growth.KindHeap, Bytes: 12 << 20, Trend: growth.TrendUndecided,
			UndecidedReason: reason, Untrackable: why, LongerS: longerS,
		}
	}
	all := []summary.Accumulation{
		undecided(growth.UndecidedFewSamples, "", new(230.0)),
		{Function: "leak", Kind: growth.KindHeap, Bytes: 11 << 20, Trend: growth.TrendAccumulating},
		undecided(growth.UndecidedUntrackable, "the allocator is jemalloc", nil),
		undecided(growth.UndecidedUnseenDeaths, "", new(2.0)),
		undecided(growth.UndecidedUntrackable, "", nil),
	}
	const begin = "cache or leak, undecided: f +12.0 MiB: "
	want := []string{
		begin + "too few of its objects were seen; trace 3.9 min more, or with a larger --overhead; full tracing (--overhead off) decides it",
		begin + "the allocator is jemalloc; only full tracing (--overhead off) decides it",
		begin + "most of it may have been freed unseen; trace 60 s more, or with a larger --overhead; full tracing (--overhead off) decides it",
		begin + "whether its objects are alive cannot be seen from outside; only full tracing (--overhead off) decides it",
	}

	mustBe(t, Undecided(all, 10), want)
	mustBe(t, Undecided(all, 2), want[:2], "the largest two")
	mustBe(t, Undecided(all[1:2], 2), nil, "of what accumulates")
}

// WHERE and the line on the cause must not contradict each other.
func TestUndecidedLine(t *testing.T) {
	s := &summary.Summary{
		Process:   summary.Process{PID: 7},
		Diagnoses: []summary.Diagnosis{{Process: 7, Cause: diagnosis.Undecided, Share: 1}},
	}
	if got, want := undecidedLine(s), "the cause of 100% of the growth is not known"; got != want {
		t.Errorf("%q, want %q", got, want)
	}

	s.Suspects = []summary.Suspect{{Function: "leak (/a.py:5)", Bytes: 100 << 20, Share: new(0.98)}}
	want := "WHERE has 98% of the growth; what kind of memory it is, is undecided"
	mustBe(t, undecidedLine(s), want)
}

// Memory whose stacks were lost grows at no call site: it is no part of what WHERE explains.
func TestLostSites(t *testing.T) {
	lost := summary.Suspect{
		Function:    (&growth.Stack{Truncated: "not reported"}).LostFrame().Function,
		BytesPerMin: 1 << 20, Share: new(0.4),
	}
	site := summary.Suspect{
		Function: "leak (/a.py:5)", Path: []string{"leak (/a.py:5)"}, BytesPerMin: 1 << 20,
		Share: new(0.6),
	}
	for name, c := range map[string]struct {
		suspects []summary.Suspect
		want     string
	}{
		"none": {
			[]summary.Suspect{site},
			"the code in WHERE explains 60% of the growth (high confidence)",
		},
		"some": {
			[]summary.Suspect{site, lost},
			"the code in WHERE explains 60% of the growth (high confidence)",
		},
		"all": {[]summary.Suspect{lost}, "WHERE is not known: the stacks were lost"},
	} {
		s := &summary.Summary{
			Verdict: summary.Verdict{Class: verdict.ClassGrowing}, Suspects: c.suspects,
			Diagnoses: []summary.Diagnosis{
				{Cause: diagnosis.MmapGrowth, Share: 1, Confidence: diagnosis.High},
			},
		}
		mustBe(t, accountLine(s), c.want, name)
	}
	if got := siteLines(lost, ""); len(got) != 1 || got[0] != lost.Function {
		t.Errorf("siteLines of lost stacks: %q", got)
	}
}

// TestFitted: a variable without room is cut, or left out where a step has no place for it.
func TestFitted(t *testing.T) {
	for name, c := range map[string]struct {
		steps    []string
		variable string
		want     string
	}{
		"room":     {[]string{"clear %s when done", "clear %s"}, "a.b", "clear a.b when done"},
		"less":     {[]string{"clear %s when done", "clear %s"}, "a.bcdefgh", "clear a.bcdefgh"},
		"cut":      {[]string{"clear %s when done", "clear %s"}, "train.a_long_variable", "clear train....iable"},
		"no place": {[]string{"warn alike: %s", "warn alike"}, "train.__warningregistry__", "warn alike"},
		"percent":  {[]string{"clear %s"}, "d['50%d']", "clear d['50%d']"},
	} {
		mustBe(t, fitted(c.steps, c.variable, 20), c.want, name)
	}
}
