package words

import (
	"math"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
)

func inBursts() summary.Overhead {
	return summary.Overhead{
		Limit: 0.03, Slowdown: new(0.019), OwnS: 4.2, OwnLimitS: 6,
		Mode: growth.HeapBursts, Bursts: 11, OpenS: 5.4, LagS: 60,
		StepBeforeS: new(0.1821), StepBetweenS: new(0.1823), StepSinceS: new(0.1839),
	}
}

func TestOverheadLines(t *testing.T) {
	const (
		share = "slows the job by 1.9% (limit 3%); allocscope itself: 0.014 of a core while tracing"
		step  = "step 182.3 ms between bursts of the heap probes, 183.9 ms in all: +0.9%"
		full  = "step 182.1 ms before, 183.9 ms with heap probes: +1.0%"
	)
	for name, test := range map[string]struct {
		change func(*summary.Overhead)
		want   []string
	}{
		"bursts": {
			func(*summary.Overhead) {},
			[]string{
				share + "; heap probed in 11 bursts, 5.4 s of 300 s",
				step + " (182.1 ms before them)",
			},
		},
		"full": {
			func(o *summary.Overhead) {
				o.Mode, o.Bursts, o.Limit = growth.HeapFull, 0, 0.0025
				o.OwnLimitS, o.OwnExcessS = 3, 1
			},
			[]string{
				"slows the job by 1.9% (limit 0.25%); allocscope itself: " +
					"0.014 of a core while tracing (above its limit of 0.010); " +
					"heap probed all the time",
				full,
			},
		},
		"snapshots left out": {
			func(o *summary.Overhead) {
				o.Mode, o.Bursts, o.LeftOutSnapshots, o.StepSinceS = growth.HeapFull, 0, 24, nil
			},
			[]string{share + ", with 24 snapshots left out to save CPU time; heap probed all the time"},
		},
		"start and searches": {
			func(o *summary.Overhead) {
				o.Mode, o.Bursts, o.StepSinceS = growth.HeapFull, 0, nil
				o.OwnS, o.StartS, o.SearchS, o.SearchAtEndS, o.EndS = 3.3, 1.23, 2.1, 0.8, 0.4
			},
			[]string{"slows the job by 1.9% (limit 3%); allocscope itself: " +
				"start 1.2 s, search 2.1 s, end 0.4 s of CPU once; 0.011 of a core while tracing; " +
				"heap probed all the time"},
		},
		"start alone": {
			func(o *summary.Overhead) {
				o.Mode, o.Bursts, o.StepSinceS, o.StartS = growth.HeapFull, 0, nil, 1.23
			},
			[]string{"slows the job by 1.9% (limit 3%); allocscope itself: " +
				"start 1.2 s of CPU once; 0.014 of a core while tracing; heap probed all the time"},
		},
		"a wait": {
			func(o *summary.Overhead) {
				o.Mode, o.Bursts, o.StepSinceS, o.WaitedS = growth.HeapFull, 0, nil, new(1.5)
			},
			[]string{"slows the job by 1.9% (limit 3%; 0.5% waits while its memory is read); " +
				"allocscope itself: 0.014 of a core while tracing; heap probed all the time"},
		},
		"the shim": {
			func(o *summary.Overhead) {
				o.Mode, o.Bursts, o.StepSinceS, o.ShimS = growth.HeapFull, 0, nil, new(3.0)
			},
			[]string{"slows the job by 1.9% (limit 3%; 1.0% in the shim); " +
				"allocscope itself: 0.014 of a core while tracing; heap probed all the time"},
		},
		"a short wait": {
			func(o *summary.Overhead) {
				o.Mode, o.Bursts, o.StepSinceS, o.WaitedS = growth.HeapFull, 0, nil, new(0.29)
			},
			[]string{share + "; heap probed all the time"},
		},
		"searches alone": {
			func(o *summary.Overhead) {
				o.Mode, o.Bursts, o.StepSinceS, o.SearchS = growth.HeapFull, 0, nil, 2.1
			},
			[]string{"slows the job by 1.9% (limit 3%); allocscope itself: " +
				"search 2.1 s of CPU once; 0.014 of a core while tracing; " +
				"heap probed all the time"},
		},
		"full again": {
			func(o *summary.Overhead) {
				o.Mode, o.Bursts, o.OpenS = growth.HeapFull, 1, 0.12
				o.StepBeforeS, o.StepBetweenS = nil, nil
			},
			[]string{share + "; heap probed in 1 burst, 0.12 s of 300 s, all the time in the end"},
		},
		"too few between": {
			func(o *summary.Overhead) { o.Slowdown, o.StepBetweenS = nil, nil }, []string{full},
		},
		"none before": {
			func(o *summary.Overhead) { o.Slowdown, o.StepBeforeS = nil, nil }, []string{step},
		},
		"off": {
			func(o *summary.Overhead) { o.Mode, o.StepSinceS = growth.HeapOff, nil },
			[]string{share + "; heap probed in 11 bursts, 5.4 s of 300 s, not at all in the end"},
		},
		"not measured": {
			func(o *summary.Overhead) { o.Slowdown, o.StepBetweenS = nil, new(0.0) }, nil,
		},
	} {
		o := inBursts()
		test.change(&o)
		s := summary.Summary{DurationS: 300, Overhead: &o}
		mustBe(t, OverheadLines(&s), test.want, name)
	}

	// Where source heap was not asked for nothing is said of it.
	t.Run("without source heap", func(t *testing.T) {
		s := summary.Summary{
			DurationS: 300,
			Overhead: &summary.Overhead{
				Limit: 0.03, Slowdown: new(0.019), OwnS: 4.2, Mode: growth.HeapOff,
			},
			Sources: []summary.Source{{Name: "heap", State: summary.SourceOff}},
		}
		mustBe(t, OverheadLines(&s), []string{share})
	})

	t.Run("not asked", func(t *testing.T) {
		mustBe(t, OverheadLines(&summary.Summary{DurationS: 300}), nil)
	})
}

func TestStepLine(t *testing.T) {
	for want, times := range map[string][2]float64{
		"step 9.12 ms before, 9.03 ms with heap probes: -1.0%":   {0.00912, 0.00903},
		"step 1.25 s before, 1.50 s with heap probes: +20.0%":    {1.25, 1.5},
		"step 12.0 s before, 12.0 s with heap probes: +0.0%":     {12, 11.999},
		"step 0.00 ms before, 0.00 ms with heap probes: +100.0%": {1e-9, 2e-9},
	} {
		o := summary.Overhead{StepBeforeS: &times[0], StepSinceS: &times[1]}
		mustBe(t, StepLine(&o), want)
	}

	t.Run("forged times", func(t *testing.T) {
		for _, times := range [][2]float64{{0, 1}, {1e-300, 1e300}, {0, 0}, {math.NaN(), 1}} {
			o := summary.Overhead{StepBeforeS: &times[0], StepSinceS: &times[1]}
			mustBe(t, StepLine(&o)+StepChange(&o), "", times)
		}
	})
}

func TestOverheadShort(t *testing.T) {
	o := inBursts()
	full, free := o, summary.Overhead{Mode: growth.HeapFull}
	full.Mode = growth.HeapFull
	for want, o := range map[string]*summary.Overhead{
		"slows the job by 1.9%, heap sampled in bursts": &o, "slows the job by 1.9%": &full,
		"heap not probed": {Mode: growth.HeapOff},
	} {
		mustBe(t, OverheadShort(o), want)
	}
	mustBe(t, OverheadShort(nil)+OverheadShort(&free), "")
}

func TestFromBursts(t *testing.T) {
	const bursts = "11 bursts of 0.49 s, without objects younger than 60 s"
	o := inBursts()
	mustBe(t, FromBursts(&o), bursts)
	full := summary.Overhead{Mode: growth.HeapFull, LagS: 60}
	mustBe(t, FromBursts(nil)+FromBursts(&full), "")

	// Where the heap was sampled in bursts, no component is no proof that nothing is held.
	t.Run("nothing accumulated", func(t *testing.T) {
		const nothing = "Nothing that was traced accumulated since the baseline."
		mustBe(t, NothingAccumulated(&summary.Summary{}), nothing)
		const want = nothing + " Heap memory is known from " + bursts +
			": a longer trace may find its allocation sites."
		mustBe(t, NothingAccumulated(&summary.Summary{Overhead: &o}), want)
	})
}

func TestScanned(t *testing.T) {
	for share, want := range map[float64]string{
		0: "", 0.004: "0.4%", 0.12: "12%", 0.99: "99%", 0.997: "", 1: "",
	} {
		mustBe(t, Scanned(summary.Resident{Scanned: share}), want, share)
	}
}

// The CPU time of allocscope itself is no note where the result does not suffer: the folder has it.
func TestBudgetNote(t *testing.T) {
	for name, c := range map[string]struct {
		excess float64
		notes  int
	}{
		"within": {0, 0}, "a little above": {0.009, 0}, "above": {0.011, 1},
	} {
		s := &summary.Summary{
			Verdict: summary.Verdict{Class: verdict.ClassGrowing}, DurationS: 5,
			Overhead: &summary.Overhead{
				Limit: 0.03, OwnS: 9, OwnLimitS: 0.1, OwnExcessS: c.excess, IntervalBytes: 1 << 30,
			},
		}
		if notes := budgetNote(s); len(notes) != c.notes {
			t.Errorf("%s: %q", name, notes)
		}
		s.Overhead.IntervalBytes = 1
		if notes := budgetNote(s); len(notes) != 0 {
			t.Errorf("%s, fine: %q", name, notes)
		}
	}
}

// One process that calls the probes in a loop makes the sampling coarse for another one that grows.
func TestBudgetNoteCoarse(t *testing.T) {
	for name, c := range map[string]struct {
		class    verdict.Class
		interval uint64
		want     string
	}{
		"coarse":        {verdict.ClassGrowing, 1 << 30, "samples are few: one in 1.00 GiB"},
		"fine":          {verdict.ClassGrowing, 1 << 20, "the result holds"},
		"does not grow": {verdict.ClassPlateau, 1 << 30, "the result holds"},
	} {
		slowdown := 0.3
		s := &summary.Summary{
			Verdict: summary.Verdict{Class: c.class}, DurationS: 60,
			Breakdown: []summary.BreakdownRow{{Kind: growth.KindHeap, DeltaBytes: 300 << 20}},
			Overhead: &summary.Overhead{
				Limit: 0.03, Slowdown: &slowdown, IntervalBytes: c.interval,
			},
		}
		if notes := budgetNote(s); len(notes) != 1 || !strings.HasSuffix(notes[0], c.want) {
			t.Errorf("%s: %q, want the end %q", name, notes, c.want)
		}
	}
}

// A process that floods the tables takes the stacks of others as well.
func TestLossNotesUnknownStacks(t *testing.T) {
	for count, notes := range map[uint64]int{5: 0, 50: 1} {
		s := &summary.Summary{
			Events: growth.Events{Stacks: 100},
			Losses: []growth.Loss{{Kind: growth.LossUnknownStacks, Count: count}},
		}
		if got := lossNotes(s); len(got) != notes {
			t.Errorf("%d lost stacks: %q, want %d notes", count, got, notes)
		}
	}
}
