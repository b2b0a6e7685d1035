package words

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/conclude"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/verdict"
)

// grown is the summary of a process that grows by 100 MiB, of one class and reason.
func grown(class verdict.Class, reason verdict.Reason) *summary.Summary {
	s := &summary.Summary{Process: summary.Process{PID: 7}}
	s.Verdict = summary.VerdictOf(with(class, reason, 1, 0.9, 1.1, 1), summary.AxisSeconds)
	s.Residents = []summary.Resident{{Process: 7, HeapTraced: true}}
	return s
}

// because adds a cause in percent of the growth.
func because(s *summary.Summary, cause diagnosis.Cause, percent float64) *summary.Summary {
	s.Diagnoses = append(s.Diagnoses, summary.Diagnosis{
		Process: 7, Cause: cause, Share: percent / 100, Confidence: diagnosis.High,
	})
	return s
}

// row adds a row that grows by so many MiB.
func row(s *summary.Summary, kind growth.Kind, file, site string, mib int64) *summary.Summary {
	s.Breakdown = append(s.Breakdown, summary.BreakdownRow{
		Process: 7, Kind: kind, File: file, Site: site, DeltaBytes: mib << 20, EndBytes: mib << 20,
	})
	return s
}

// TestWhose has the lines of WHO and WHERE where the breakdown knows more than the call sites.
func TestWhose(t *testing.T) {
	const fill, read = "fill (/src/train.py:6)", "read (/src/data.py:9)"
	growing := func() *summary.Summary { return grown(verdict.ClassGrowing, verdict.ReasonStillGrowing) }

	for name, c := range map[string]struct {
		*summary.Summary
		who, where string
	}{
		"older memory": {
			row(because(growing(), diagnosis.OlderMemory, 99), growth.KindOlder, "", fill, 100),
			"memory from before the trace, touched for the first time by fill(), 99% of the growth",
			"train.py:6  fill()   <- first touched here",
		},
		"pages of a file, levelling off": {
			row(because(grown(verdict.ClassSaturating, verdict.ReasonSlowsDown), diagnosis.PageCache, 100),
				growth.KindFile, "/data/data.mdb", read, 100),
			"pages of mapped files: data.mdb, 100% of the growth",
			"data.py:9  read()   <- first touched here",
		},
		"pages of files, and nothing else": {
			row(row(because(grown(verdict.ClassPlateau, verdict.ReasonPageCache), diagnosis.PageCache, 100),
				growth.KindFile, "/data/a", read, 60), growth.KindFile, "/data/b", read, 40),
			"pages of mapped files: a and 1 other file, 100% of the growth",
			"data.py:9  read()   <- first touched here",
		},
		"mapped by code that is not known": {
			row(because(growing(), diagnosis.MmapGrowth, 100), growth.KindMmap, "", "", 100),
			"memory that is mapped besides malloc, by code that is not known, 100% of the growth", "",
		},
		"a second cause": {
			because(because(because(growing(), diagnosis.OlderMemory, 60), diagnosis.Fragmentation, 37),
				diagnosis.Undecided, 3),
			"memory from before the trace, touched for the first time, 60% of the growth|" +
				"37% is freed memory that malloc keeps; 3% has no cause", "",
		},
		"no single cause": {
			because(because(because(growing(), diagnosis.SharedMemory, 45), diagnosis.Fragmentation, 40),
				diagnosis.Undecided, 15),
			"no single cause: 45% is shared memory, such as /dev/shm and memfd; 2 more: --details", "",
		},
		"a kind without a cause": {
			row(row(because(growing(), diagnosis.Undecided, 100), growth.KindHeap, "", fill, 70),
				growth.KindUnclassified, "", "", 30),
			"heap, allocated and not freed, 70% of the growth",
			"train.py:6  fill()   <- allocated or first touched here",
		},
		"a kind that is not known": {
			row(because(growing(), diagnosis.Undecided, 100), growth.KindUnclassified, "", "", 100),
			"not known: no traced call site accounts for the growth", "",
		},
	} {
		who, where := nonEmpty(whoLines(c.Summary)), nonEmpty(whereLines(c.Summary, Place{}))
		if who != c.who || where != c.where {
			t.Errorf("%s: %q, %q; want %q, %q", name, who, where, c.who, c.where)
		}
	}
}

func nonEmpty(lines []string) string {
	lines = slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return line == "" })
	return strings.Join(lines, "|")
}

// TestGrowthEnded names the code and the keeper of growth that ended shortly before the end.
func TestGrowthEnded(t *testing.T) {
	s := because(grown(verdict.ClassTooShort, verdict.ReasonGrowthEnded), diagnosis.HeapLeak, 99)
	s.Segment = new(33.0)
	s.Phases = []summary.VerdictPhase{
		{Kind: verdict.PhaseWarmup, From: new(0.0), To: new(63.0), Rate: new(float64(500 << 20))},
		{Kind: verdict.PhaseOpen, From: new(63.0), To: new(96.0), Rate: new(0.0)},
	}
	s.Suspects = []summary.Suspect{{
		Component: "train.py", Function: "load (/src/train.py:6)", Share: new(0.99),
		StackIDs: []string{"a"},
	}}
	s.Keepers = []summary.Keeper{{
		PID: 7, StackID: "a", Samples: 16,
		Paths: []keeper.Path{{
			Samples: 16, Share: 1,
			Root:  keeper.Root{Kind: keeper.RootGlobal, Module: "train", Name: "cache"},
			Links: []keeper.Link{{How: keeper.HowVariable, Type: "dict", Entries: 620}},
		}},
	}}

	r := ResultOf(s, Place{})
	for label, want := range map[string]string{
		LabelWho:     "CPU heap memory that load() allocates and has not freed, 99% of the growth",
		LabelWhere:   "train.py:6  load()   <- your code|kept by train.cache (dict, 620 entries)",
		LabelHowFast: "500 MiB/min for 1m3s, then flat for 33s",
	} {
		mustBe(t, strings.Join(r.Block(label), "|"), want, label)
	}
	const sure = "too short: it has grown until 33s before the end"
	if got := r.Block(LabelHowSure); len(got) == 0 || !strings.HasPrefix(got[0], sure) {
		t.Errorf("%q, want %q", got, sure)
	}
	const next = "If it grows again: give train.cache a limit, or remove entries when done"
	if got := r.Block(LabelDoNext); r.Name != "NOT ENOUGH DATA" || len(got) < 2 || got[1] != next {
		t.Errorf("%s: %q, want %q", r.Name, got, next)
	}
}

// TestNoLeakOfObjects: that is said only where no objects were found to be kept.
func TestNoLeakOfObjects(t *testing.T) {
	freed := func() *summary.Summary {
		s := grown(verdict.ClassGrowing, verdict.ReasonFragmentation)
		return because(s, diagnosis.Fragmentation, 80)
	}
	kept := func(k summary.Keeper) *summary.Summary {
		s := because(freed(), diagnosis.Undecided, 5)
		k.PID = s.Process.PID
		s.Keepers = []summary.Keeper{k}
		if len(k.Paths) > 0 {
			s.Evidence = &summary.Evidence{For: []conclude.Fact{{Code: conclude.FactPins}}}
		}
		return s
	}
	variable := []keeper.Path{{Samples: 16, Root: keeper.Root{Kind: keeper.RootGlobal, Name: "kept"}}}
	for name, c := range map[string]struct {
		*summary.Summary
		want bool
	}{
		"a type is kept":        {kept(summary.Keeper{Type: "torch.Tensor", Samples: 16, Paths: variable}), false},
		"nothing keeps a type":  {kept(summary.Keeper{Type: "torch.Tensor", Samples: 16}), true},
		"the rest is small":     {because(freed(), diagnosis.Undecided, 5), true},
		"a little accumulates":  {because(freed(), diagnosis.HeapLeak, 3), true},
		"the rest is not known": {because(freed(), diagnosis.Undecided, 20), false},
		"objects are kept":      {because(freed(), diagnosis.HeapLeak, 20), false},
		"Python's objects":      {because(because(freed(), diagnosis.PythonObjects, 3), diagnosis.HeapLeak, 3), false},
	} {
		lines := strings.Join(fragmentationLines(c.Summary), " ")
		if got := strings.Contains(lines, "no leak of objects"); got != c.want {
			t.Errorf("%s: %q", name, lines)
		}
	}
}

// TestKeptBesideFree: new objects take the place of older ones, so that their call site allocates more
// than RSS grows.
func TestKeptBesideFree(t *testing.T) {
	s := because(grown(verdict.ClassSaturating, verdict.ReasonSlowsDown), diagnosis.Fragmentation, 78)
	because(s, diagnosis.HeapLeak, 22)
	share := 1.86
	s.Suspects = []summary.Suspect{{Function: "decode (/src/buffer.py:11)", Share: &share, BytesPerMin: 1 << 20}}
	want := " 78%  no call site: this memory is free| 22%  buffer.py:11  decode()   <- your code"
	if got := nonEmpty(whereLines(s, Place{})); !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if share != 1.86 {
		t.Errorf("the summary has %g", share)
	}
}

// TestPinned has who keeps objects that can pin freed memory.
func TestPinned(t *testing.T) {
	s := because(grown(verdict.ClassGrowing, verdict.ReasonFragmentation), diagnosis.Fragmentation, 90)
	s.Keepers = []summary.Keeper{{
		PID: 7, Type: "torch.Tensor", Samples: 16,
		Paths: []keeper.Path{{
			Samples: 16, Share: 1, Root: keeper.Root{Kind: keeper.RootGlobal, Module: "train", Name: "kept"},
			Links: []keeper.Link{
				{How: keeper.HowVariable, Type: "list", Entries: 6400, PerMinute: 4800, GrowthS: 60},
				{How: keeper.HowItem, Type: "torch.Tensor", Entries: keeper.NoContainer},
			},
		}},
	}}
	pinned := conclude.Fact{Code: conclude.FactPins, PerMinute: 4800}
	s.Evidence = &summary.Evidence{For: []conclude.Fact{pinned}}

	const where = "no call site: this memory is free|" +
		"objects beside it are kept by train.kept (list, 6,400 entries, +4,800/min) -> Tensor"
	mustBe(t, nonEmpty(whereLines(s, Place{})), where)
	const sure = "the growth is freed memory that malloc keeps; kept objects can pin it: 4,800 more/min"
	mustBe(t, sureLines(s)[0], sure)
	const limit = "give train.kept a limit, or remove entries when done"
	next := nextLines(s, Place{})
	if len(next) != 3 || next[0] != limit || next[1] != stepTexts[summary.StepOneArena] {
		t.Errorf("%q", next)
	}

	s.Evidence = nil
	if got := nonEmpty(whereLines(s, Place{})); strings.Contains(got, "kept") {
		t.Errorf("%q", got)
	}

	// The kept objects are more of the growth, so that the verdict is not about the freed memory.
	growing := grown(verdict.ClassGrowing, verdict.ReasonStillGrowing)
	because(because(growing, diagnosis.Fragmentation, 75), diagnosis.HeapLeak, 25)
	growing.Keepers = s.Keepers
	pinned.Share = 0.75
	growing.Evidence = &summary.Evidence{For: []conclude.Fact{pinned}}
	const look = "does len(train.kept) have to grow? If not, give it a limit, or remove entries"
	lasting := "If it lasts: " + stepTexts[summary.StepOneArena]
	if next := nextLines(growing, Place{}); len(next) != 3 || next[0] != look || next[2] != lasting {
		t.Errorf("%q", next)
	}
	const pin = "for a leak: 75% is freed memory that kept objects can pin: 4,800 more/min"
	mustBe(t, sureLines(growing)[0], pin)
	growing.Class, growing.WhyCode = verdict.ClassLeak, verdict.ReasonNoPlateau
	next = nextLines(growing, Place{})
	if len(next) != 3 || next[0] != limit || next[1] != stepTexts[summary.StepOneArena] {
		t.Errorf("%q", next)
	}

	flat := grown(verdict.ClassPlateau, verdict.ReasonNoGrowth)
	flat.Keepers = s.Keepers
	gains := conclude.Fact{Code: conclude.FactGains, PerMinute: 4800, Length: 200}
	flat.Evidence = &summary.Evidence{For: []conclude.Fact{gains}}
	const note = "train.kept (list, 6,400 entries, +4,800/min) -> Tensor " +
		"loses none: is it meant to grow?"
	if got := noteLines(flat, Place{}); len(got) == 0 || got[0] != note {
		t.Errorf("%q, want %q", got, note)
	}
}

func TestFill(t *testing.T) {
	fills := func(meetsLimit bool, high float64) summary.Verdict {
		v := with(verdict.ClassFillsUp, verdict.ReasonBounded, 5, 4, 6, 6)
		v.Fill = &verdict.Fill{
			Of: verdict.BoundMemory, Left: 1200 * bytesPerMiB, Level: 2048 * bytesPerMiB,
			In: 720, InLow: 660, InHigh: high, MeetsLimit: meetsLimit,
		}
		if meetsLimit {
			v.Class = verdict.ClassGrowing
		}
		return summary.VerdictOf(v, summary.AxisSeconds)
	}
	const pace = "+300 MiB/min (95% CI 240-360)"

	for want, v := range map[string]summary.Verdict{
		"FILLS UP: at most 1.17 GiB more, in 11-13 min; " + pace:          fills(false, 780),
		"FILLS UP: at most 1.17 GiB more, in about 12 min; " + pace:       fills(false, 2000),
		"FILLS UP: at most 1.17 GiB more, in about 12 min; " + pace + " ": fills(false, math.Inf(1)),
		"FILLS UP: " + pace: fills(true, 780),
	} {
		mustBe(t, Headline(v), strings.TrimSpace(want))
	}

	if got, want := Certainty(fills(true, 780))[0], "it fills memory of a known size, touched now for "+
		"the first time, but the limit is met before it is full (at most 1.17 GiB more, in 11-13 min)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	lines := Certainty(fills(false, 780))
	if !strings.HasSuffix(lines[0], ": it ends near 2.00 GiB") {
		t.Errorf("%q", lines[0])
	}
	if !strings.HasSuffix(lines[1], "decided by 15 min more: flat then, or it is a leak") {
		t.Errorf("%q", lines[1])
	}
}

func TestPeakText(t *testing.T) {
	peak := int64(875 << 20)
	for want, rss := range map[string]summary.RSS{
		"": {},
		"before this trace RSS has been 875 MiB (VmHWM)":                        {PeakBytes: &peak, PeakBefore: true},
		"RSS has been 875 MiB for less than a second during this trace (VmHWM)": {PeakBytes: &peak},
	} {
		mustBe(t, PeakText(rss), want)
	}
}

// TestUntracedHeap: a process that ends before its first count with source heap had it all the same.
func TestUntracedHeap(t *testing.T) {
	for state, want := range map[string]string{
		summary.SourceAttached: "", summary.SourceFailed: "not known: malloc was not traced",
	} {
		s := because(grown(verdict.ClassGrowing, verdict.ReasonStillGrowing), diagnosis.Undecided, 100)
		s.Residents[0].HeapTraced = false
		s.Sources = []summary.Source{{Name: "heap", PID: s.Process.PID, State: state}}
		if where := nonEmpty(whereLines(s, Place{})); where != want {
			t.Errorf("%s: %q, want %q", state, where, want)
		}
	}
}
