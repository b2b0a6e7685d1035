package verdict

import (
	"cmp"
	"math"
	"testing"
)

// classed is a verdict of one class on a series.
func classed(class Class) Verdict {
	v := Unjudged(Series{}, InSeconds())
	v.Class, v.Reason, v.Longer, v.Level = class, ReasonAfterWarmup, 0, 1<<30
	return v
}

// Findings that each make one override apply to a verdict of decided.
func fewChecks() Findings { return Findings{Streak: Streak{1, 3}, UntilEnough: 60} }

func withoutFiles(class Class) Findings {
	v := classed(class)
	v.Reason = ReasonNoGrowth
	return Findings{WithoutFiles: &v}
}

func workers(c Class) Findings {
	v := classed(c)
	return Findings{Workers: &v}
}

func replaced() Findings { return Findings{Replaced: true} }

func outside(c Class) Findings {
	v := classed(c)
	return Findings{Outside: &v}
}
func lost(share float64) Findings { return Findings{Lost: &Lost{Share: share}} }

// bounded is growth that ends after so many bytes. classed has no rate: see rising.
func bounded(share, left float64) Findings {
	return Findings{Bound: &Bound{Of: BoundMemory, Share: share, Left: left, Now: 100}}
}

// rising gives a verdict a rate of 10, and a limit that is met after so many X.
func rising(class Class, toLimit float64) Verdict {
	v := classed(class)
	v.Rate, v.RateLow, v.RateHigh, v.ToLimit, v.Longer = 10, 8, 12.5, toLimit, 60
	return v
}

// both joins findings.
func both(a, b Findings) Findings {
	return Findings{
		StacksAccumulate: a.StacksAccumulate || b.StacksAccumulate, Lost: a.Lost,
		AppendOnly: a.AppendOnly || b.AppendOnly, WriteOnly: a.WriteOnly || b.WriteOnly,
		Fragmentation: a.Fragmentation || b.Fragmentation, Garbage: a.Garbage || b.Garbage,
		WithoutFiles: a.WithoutFiles, Other: b.Other, Workers: cmp.Or(a.Workers, b.Workers),
		Replaced: a.Replaced || b.Replaced, Outside: b.Outside,
		Streak: b.Streak, UntilEnough: b.UntilEnough,
	}
}

func other() Findings { return Findings{Other: &OtherGrowth{PID: 7}} }

// A decision is a verdict and what Decide makes of it.
type decision struct {
	judged Class
	found  Findings
	want   Class
	reason Reason
}

func (d decision) check(t *testing.T, name string) Verdict {
	t.Helper()
	v := Decide(classed(d.judged), d.found)
	if v.Class != d.want || v.Reason != d.reason {
		t.Errorf("%s: %s becomes %s (%s), want %s (%s)", name, d.judged, v.Class, v.Reason, d.want,
			d.reason)
	}
	return v
}

// TestDecide has the overrides in their order, each alone.
func TestDecide(t *testing.T) {
	stacks, freed := Findings{StacksAccumulate: true}, Findings{Fragmentation: true}
	appended, garbage := Findings{AppendOnly: true}, Findings{Garbage: true}
	unread := Findings{WriteOnly: true}
	none := ReasonAfterWarmup // of classed: nothing applies

	for i, c := range []struct {
		name      string
		decisions []decision
	}{
		{"stacks accumulate", []decision{
			{ClassGrowing, stacks, ClassSuspected, ReasonStacksAccumulate},
			{ClassLeak, stacks, ClassLeak, none},
			{ClassPlateau, stacks, ClassPlateau, none},
		}},
		{"append only", []decision{
			{ClassGrowing, appended, ClassSuspected, ReasonAppendOnly},
			{ClassLeak, appended, ClassLeak, none},
			{ClassSaturating, appended, ClassSaturating, none},
			{ClassPlateau, appended, ClassPlateau, none},
		}},
		{"fragmentation", []decision{
			{ClassLeak, freed, ClassLeak, ReasonFragmentation},
			{ClassGrowing, freed, ClassGrowing, ReasonFragmentation},
			{ClassPlateau, freed, ClassPlateau, none},
			{ClassSaturating, freed, ClassSaturating, none},
		}},
		{"garbage", []decision{
			{ClassLeak, garbage, ClassLeak, ReasonGarbage},
			{ClassGrowing, garbage, ClassGrowing, ReasonGarbage},
			{ClassPlateau, garbage, ClassPlateau, none},
			{ClassSaturating, garbage, ClassSaturating, none},
			{ClassGrowing, Findings{Garbage: true, Fragmentation: true}, ClassGrowing, ReasonFragmentation},
		}},
		{"without files", []decision{
			{ClassLeak, withoutFiles(ClassPlateau), ClassPlateau, ReasonPageCache},
			{ClassGrowing, withoutFiles(ClassSpikyPlateau), ClassSpikyPlateau, ReasonPageCache},
			{ClassLeak, withoutFiles(ClassTooShort), ClassTooShort, ReasonNoGrowth},
			{ClassLeak, withoutFiles(ClassGrowing), ClassLeak, none},
			{ClassSaturating, withoutFiles(ClassPlateau), ClassSaturating, none},
		}},
		{"fills up", []decision{
			{ClassPlateau, bounded(1, 50), ClassPlateau, none},
			{ClassSaturating, bounded(1, 50), ClassSaturating, none},
			{ClassGrowing, bounded(1, 50), ClassGrowing, none}, // at no known rate
		}},
		{"workers", []decision{
			{ClassPlateau, workers(ClassGrowing), ClassGrowing, ReasonWorkers},
			{ClassTooShort, workers(ClassLeak), ClassLeak, ReasonWorkers},
			{ClassSaturating, workers(ClassGrowing), ClassGrowing, ReasonWorkers},
			{ClassPlateau, workers(ClassSaturating), ClassPlateau, none},
			{ClassGrowing, workers(ClassLeak), ClassGrowing, none},
		}},
		{"outside processes", []decision{
			{ClassPlateau, outside(ClassGrowing), ClassGrowing, ReasonOutside},
			{ClassSpikyPlateau, outside(ClassLeak), ClassLeak, ReasonOutside},
			{ClassPlateau, outside(ClassPlateau), ClassPlateau, none},
			{ClassLeak, outside(ClassLeak), ClassLeak, none},
		}},
		{"replaced workers", []decision{
			{ClassPlateau, replaced(), ClassPlateau, ReasonReplaced},
			{ClassSpikyPlateau, replaced(), ClassSpikyPlateau, ReasonReplaced},
			{ClassTooShort, replaced(), ClassTooShort, ReasonReplaced},
			{ClassGrowing, replaced(), ClassGrowing, none},
			{ClassPlateau, both(replaced(), workers(ClassGrowing)), ClassGrowing, ReasonWorkers},
		}},
		{"few checks", []decision{
			{ClassLeak, fewChecks(), ClassSuspected, ReasonFewRechecks},
			{ClassLeak, Findings{Streak: Streak{3, 3}}, ClassLeak, none},
			{ClassGrowing, fewChecks(), ClassGrowing, none},
		}},
		{"write only", []decision{
			{ClassGrowing, unread, ClassLeak, ReasonWriteOnly},
			{ClassLeak, unread, ClassLeak, none},
			{ClassGrowing, both(unread, appended), ClassLeak, ReasonWriteOnly},
			{ClassLeak, both(unread, fewChecks()), ClassLeak, ReasonWriteOnly},
			{ClassGrowing, both(unread, freed), ClassGrowing, ReasonFragmentation},
			{ClassPlateau, unread, ClassPlateau, none},
			{ClassSaturating, unread, ClassSaturating, none},
			{ClassPlateau, both(unread, workers(ClassGrowing)), ClassGrowing, ReasonWorkers},
		}},
		{"lost", []decision{
			{ClassGrowing, lost(0.5), ClassLeak, ReasonLost},
			{ClassSuspected, lost(1), ClassLeak, ReasonLost},
			{ClassLeak, lost(1), ClassLeak, ReasonLost},
			{ClassGrowing, lost(0.49), ClassGrowing, none},
			{ClassPlateau, lost(1), ClassPlateau, none},
			{ClassSaturating, lost(1), ClassSaturating, none},
		}},
		{"halted", []decision{
			{ClassPlateau, Findings{Halted: 0.51}, ClassTooShort, ReasonHalted},
			{ClassTooShort, Findings{Halted: 1}, ClassTooShort, ReasonHalted},
			{ClassPlateau, Findings{Halted: 0.5}, ClassPlateau, none},
			{ClassGrowing, Findings{Halted: 1}, ClassGrowing, none},
			{ClassSaturating, Findings{Halted: 1}, ClassSaturating, none},
		}},
		{"other process", []decision{
			{ClassPlateau, other(), ClassWrongProcess, ReasonOtherProcess},
			{ClassSpikyPlateau, other(), ClassWrongProcess, ReasonOtherProcess},
			{ClassTooShort, other(), ClassWrongProcess, ReasonOtherProcess},
			{ClassSaturating, other(), ClassSaturating, none},
			{ClassLeak, other(), ClassLeak, none},
		}},
		{"has ended", []decision{
			{ClassLeak, Findings{HasEnded: true}, ClassLeak, none},
		}},
	} {
		if i >= len(overrides) || overrides[i].name != c.name {
			t.Fatalf("override %d is not %q", i, c.name)
		}
		for _, d := range c.decisions {
			d.check(t, c.name)
		}
	}

	if len(overrides) != 15 {
		t.Errorf("%d overrides: one is not tested", len(overrides))
	}
}

// TestDecideBound has growth whose end is known.
func TestDecideBound(t *testing.T) {
	never := math.NaN()
	for name, c := range map[string]struct {
		judged Verdict
		found  Findings
		want   Class
		reason Reason
	}{
		"growth that ends":      {rising(ClassGrowing, never), bounded(1, 50), ClassFillsUp, ReasonBounded},
		"a leak by its length":  {rising(ClassLeak, never), bounded(0.8, 50), ClassFillsUp, ReasonBounded},
		"too little of it ends": {rising(ClassGrowing, never), bounded(0.79, 50), ClassGrowing, ReasonAfterWarmup},
		"files grow beside it": {
			rising(ClassGrowing, never),
			Findings{Bound: bounded(1, 50).Bound, Outside: outside(ClassGrowing).Outside},
			ClassFillsUp, ReasonBounded,
		},
		"the limit is met later":   {rising(ClassLeak, 5.1), bounded(1, 50), ClassFillsUp, ReasonBounded},
		"the limit is met first":   {rising(ClassLeak, 4.9), bounded(1, 50), ClassLeak, ReasonBounded},
		"first, and it may go on":  {rising(ClassGrowing, 0), bounded(1, 50), ClassGrowing, ReasonBounded},
		"it slows down":            {rising(ClassSaturating, never), bounded(1, 50), ClassSaturating, ReasonAfterWarmup},
		"stacks accumulate beside": {rising(ClassGrowing, never), Findings{StacksAccumulate: true, Bound: bounded(1, 50).Bound}, ClassFillsUp, ReasonBounded},
		"what is lost is not full": {
			rising(ClassLeak, 4.9),
			Findings{Lost: lost(1).Lost, Bound: bounded(1, 50).Bound},
			ClassLeak, ReasonLost,
		},
		"checks do not matter": {rising(ClassLeak, never), Findings{Streak: Streak{1, 3}, Bound: bounded(1, 50).Bound}, ClassFillsUp, ReasonBounded},
	} {
		v := Decide(c.judged, c.found)
		if v.Class != c.want || v.Reason != c.reason {
			t.Errorf("%s: %s (%s), want %s (%s)", name, v.Class, v.Reason, c.want, c.reason)
		}
		if (v.Fill != nil) != (c.reason == ReasonBounded) {
			t.Errorf("%s: %+v", name, v.Fill)
		}
	}

	v := Decide(rising(ClassGrowing, never), bounded(0.8, 64))
	if want := (Fill{BoundMemory, 64, 164, 8, 6.4, 10, false}); v.Fill == nil || *v.Fill != want ||
		v.Longer != 0 {
		t.Errorf("%+v, %v longer; want %+v, and a final verdict", v.Fill, v.Longer, want)
	}
	endless := rising(ClassGrowing, never)
	endless.RateLow = -1
	if v := Decide(endless, bounded(1, 50)); !math.IsInf(v.Fill.InHigh, 1) {
		t.Errorf("full in at most %v at a rate that may be 0", v.Fill.InHigh)
	}
}

// TestDecideOrder has each pair of overrides of which one changes a field that the other looks at.
func TestDecideOrder(t *testing.T) {
	stacks, freed := Findings{StacksAccumulate: true}, Findings{Fragmentation: true}

	garbage := Findings{Garbage: true}

	for name, d := range map[string]decision{
		"garbage is the reason, though stacks accumulate": {
			ClassGrowing, both(garbage, stacks), ClassSuspected, ReasonGarbage,
		},
		"garbage stays the reason": {
			ClassLeak, both(garbage, fewChecks()), ClassSuspected, ReasonGarbage,
		},
		"freed memory is most of it, and no garbage": {
			ClassGrowing, both(freed, garbage), ClassGrowing, ReasonFragmentation,
		},
		"freed memory is the reason, though stacks accumulate": {
			ClassGrowing, both(freed, stacks), ClassSuspected, ReasonFragmentation,
		},
		"files explain more than stacks": {
			ClassGrowing, both(withoutFiles(ClassPlateau), stacks), ClassPlateau, ReasonPageCache,
		},
		"growth that stacks explain needs no checks": {
			ClassGrowing, both(stacks, fewChecks()), ClassSuspected, ReasonStacksAccumulate,
		},
		"freed memory stays the reason": {
			ClassLeak, both(freed, fewChecks()), ClassSuspected, ReasonFragmentation,
		},
		"no leak is left to check": {
			ClassLeak, both(withoutFiles(ClassPlateau), fewChecks()), ClassPlateau, ReasonPageCache,
		},
		"only files grow here, and memory does elsewhere": {
			ClassLeak, both(withoutFiles(ClassPlateau), other()), ClassWrongProcess,
			ReasonOtherProcess,
		},
		"workers are the tree's own": {
			ClassPlateau, both(workers(ClassGrowing), outside(ClassLeak)), ClassGrowing, ReasonWorkers,
		},
		"workers grow, and the process has only started them": {
			ClassPlateau, both(workers(ClassGrowing), other()), ClassGrowing, ReasonWorkers,
		},
		"workers say what grows, whatever the checks": {
			ClassPlateau, both(workers(ClassLeak), fewChecks()), ClassSuspected, ReasonWorkers,
		},
		"a proof needs no checks": {
			ClassLeak, both(lost(1), fewChecks()), ClassLeak, ReasonLost,
		},
		"what is lost is not in the workers": {
			ClassPlateau,
			Findings{Workers: workers(ClassGrowing).Workers, Lost: lost(1).Lost},
			ClassGrowing, ReasonWorkers,
		},
		"what is lost is in the process": {
			ClassPlateau,
			Findings{Outside: outside(ClassGrowing).Outside, Lost: lost(1).Lost},
			ClassGrowing, ReasonOutside,
		},
		"freed memory is the growth, though some is lost": {
			ClassLeak, both(lost(1), freed), ClassLeak, ReasonFragmentation,
		},
		"a suspected leak is growth of its own": {
			ClassLeak, both(freed, Findings{Streak: Streak{1, 3}, Other: other().Other}),
			ClassSuspected, ReasonFragmentation,
		},
	} {
		d.check(t, name)
	}
}

// TestDecideNumbers checks the fields that the overrides change besides class and reason.
func TestDecideNumbers(t *testing.T) {
	v := Decide(classed(ClassLeak), fewChecks())
	if v.Streak != (Streak{1, 3}) || v.Longer != 60 {
		t.Errorf("too few checks: %+v, %v more", v.Streak, v.Longer)
	}

	proven := lost(1)
	proven.Streak, proven.UntilEnough = Streak{1, 3}, 60
	if v := Decide(classed(ClassLeak), proven); v.Lost == nil || v.Streak != (Streak{}) || v.Longer != 0 {
		t.Errorf("a proof: %+v", v)
	}
	found := fewChecks()
	found.Fragmentation = true
	if v := Decide(classed(ClassLeak), found); v.Streak != (Streak{}) || v.Longer != 60 {
		t.Errorf("freed memory: %+v, %v more", v.Streak, v.Longer)
	}
	if v := Decide(classed(ClassLeak), withoutFiles(ClassPlateau)); !math.IsNaN(v.Level) {
		t.Errorf("without files: a level of %v, which is not of RSS", v.Level)
	}
	near := classed(ClassLeak)
	near.ToLimit, near.ToLimitLow, near.ToLimitHigh = 60, 50, 70
	if v := Decide(near, Findings{HasEnded: true}); !v.EndedBeforeLimit || !math.IsNaN(v.ToLimit) ||
		!math.IsNaN(v.ToLimitLow) || !math.IsNaN(v.ToLimitHigh) {
		t.Errorf("the process has ended: %v to the limit", v.ToLimit)
	}
	if v := Decide(classed(ClassLeak), Findings{HasEnded: true}); v.EndedBeforeLimit {
		t.Error("there was no limit to meet")
	}
	if v := Decide(classed(ClassPlateau), other()); v.Other == nil || v.Other.PID != 7 {
		t.Errorf("the other process: %+v", v.Other)
	}
}

// TestFarFaster has a process that grows by 1 MiB/min, and other memory. A surer verdict on the
// process stays, and any beside other processes.
func TestFarFaster(t *testing.T) {
	for _, c := range []struct {
		class, other Class
		rate         float64 // of the other memory, MiB/min
		reason       Reason
	}{
		{ClassGrowing, ClassGrowing, 100, ReasonOutside},
		{ClassGrowing, ClassLeak, 100, ReasonOutside},
		{ClassGrowing, ClassGrowing, 5, ReasonStillGrowing},
		{ClassSuspected, ClassGrowing, 100, ReasonStillGrowing},
		{ClassFillsUp, ClassGrowing, 100, ReasonStillGrowing},
		{ClassGrowing, ClassPlateau, 100, ReasonStillGrowing},
	} {
		other := Verdict{Class: c.other, Rate: c.rate * (1 << 20) / 60}
		for _, f := range []struct {
			found  Findings
			reason Reason
		}{
			{Findings{Outside: &other}, c.reason},
			{Findings{Outside: &other, IsHeld: true}, ReasonStillGrowing},
			{Findings{Outside: &other, WriteOnly: true}, ReasonStillGrowing},
			{Findings{Outside: &other, Lost: new(Lost)}, ReasonStillGrowing},
			{Findings{Workers: &other}, ReasonStillGrowing},
		} {
			v := Verdict{Class: c.class, Reason: ReasonStillGrowing, Rate: 1 << 20 / 60}
			judgeWorkers(&v, f.found)
			judgeOutside(&v, f.found)
			if v.Reason != f.reason {
				t.Errorf("%+v, %+v: %s, %s", c, f.found, v.Class, v.Reason)
			}
		}
	}
}
