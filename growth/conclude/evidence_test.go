package conclude

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/diagnosis"
	"github.com/allocscope/allocscope/growth/gpu"
	"github.com/allocscope/allocscope/growth/judge"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/growth/trend"
	"github.com/allocscope/allocscope/growth/verdict"
)

// codesOf are the codes of facts in their order.
func codesOf(facts []Fact) (codes []FactCode) {
	for _, f := range facts {
		codes = append(codes, f.Code)
	}
	return codes
}

// growing is a verdict and a result in which nothing is known but that it grows.
func growing() (verdict.Verdict, *Result) {
	v := verdict.Verdict{Class: verdict.ClassGrowing, Reason: verdict.ReasonStillGrowing}
	v.Shape.Misfit, v.Shape.Halves, v.Shape.UntilLeak = math.NaN(), math.NaN(), math.NaN()
	snapshot := &growth.Snapshot{Interval: 1}
	end := &growth.Snapshot{Interval: 1, Elapsed: time.Minute}
	return v, &Result{
		Main: Process{History: &growth.ProcessHistory{}, Judgement: judge.Judgement{Verdict: v}},
		Pair: Pair{snapshot, end}, Scanned: Pair{snapshot, end},
	}
}

// TestUntilLeak: a verdict that no longer growth would change has no such time.
func TestUntilLeak(t *testing.T) {
	lacks := func(v *verdict.Verdict) { v.Shape.Lack, v.Shape.UntilLeak = verdict.LackWarmup, 2704.5 }
	for name, c := range map[string]struct {
		change func(*verdict.Verdict)
		want   float64
	}{
		"young":        {lacks, 2704.5},
		"few checks":   {func(v *verdict.Verdict) { v.Longer = 60 }, 60},
		"a leak":       {func(v *verdict.Verdict) { lacks(v); v.Class = verdict.ClassLeak }, math.NaN()},
		"nothing said": {func(*verdict.Verdict) {}, math.NaN()},
	} {
		v, r := growing()
		c.change(&v)
		k := known{Verdict: v, result: r}
		got := k.evidence().UntilLeak
		if got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
			t.Errorf("%s: a leak after %v s more, want %v", name, got, c.want)
		}
	}
}

// TestExplained adds the share of the call sites to the share without a cause: no more than the
// growth, and as WHO has them.
func TestExplained(t *testing.T) {
	for _, c := range []struct{ suspect, undecided, sites, noCause float64 }{
		{0.74, 0.96, 0.74, 0.26}, // the growth has no cause but its call sites
		{1, 0.07, 0.93, 0},       // it has one, as far as the call sites
		{0.79, 0.24, 0.76, 0.24},
		{1, 0, 1, 0},
	} {
		v, r := growing()
		r.Main.Suspects = []trend.Suspect{{Share: c.suspect, StackIDs: []uint64{1}}}
		undecided := diagnosis.Diagnosis{Cause: diagnosis.Undecided, Share: c.undecided}
		r.Main.Diagnoses = []diagnosis.Diagnosis{undecided}
		k := known{Verdict: v, result: r}
		e := k.evidence()

		noCause := 0.0
		for _, f := range e.Against {
			if f.Code == FactNoCause {
				noCause = f.Share
			}
		}
		isNear := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
		at := slices.Index(codesOf(e.For), FactSites)
		if at < 0 || !isNear(e.For[at].Share, c.sites) || !isNear(noCause, c.noCause) {
			t.Errorf("%+v: %+v, %+v", c, e.For, e.Against)
		}
	}
}

// TestFacts finds each fact where it holds, and none where nothing is known.
func TestFacts(t *testing.T) {
	suspect := func(r *Result, share float64) {
		r.Main.Suspects = []trend.Suspect{{Share: share, StackIDs: []uint64{1}}}
	}
	cause := func(r *Result, of diagnosis.Cause, share float64) {
		r.Main.Diagnoses = append(r.Main.Diagnoses, diagnosis.Diagnosis{Cause: of, Share: share})
	}
	kept := func(r *Result, stack uint64, perMinute float64) {
		r.Keepers = []keeper.Search{{Stack: stack, Samples: 8, Paths: []keeper.Path{{
			Samples: 6, Links: []keeper.Link{{Entries: 5}, {Entries: 9, PerMinute: perMinute}},
		}}}}
	}
	holds := func(r *Result, allocated float64, inUse int64) {
		r.Pair.End.Holdings = []growth.Holding{{
			Stack: &growth.Stack{ID: 1}, Kind: growth.KindHeap, AllocBytes: allocated, InuseBytes: inUse,
		}}
	}

	for name, c := range map[string]struct {
		change       func(*verdict.Verdict, *Result)
		For, Against []FactCode
	}{
		"nothing is known": {func(*verdict.Verdict, *Result) {}, nil, nil},
		"straight": {
			func(v *verdict.Verdict, _ *Result) { v.Shape.Misfit, v.Shape.Halves = 0.01, 1.1 },
			[]FactCode{FactStraight},
			nil,
		},
		"one search found no reference": {
			func(_ *verdict.Verdict, r *Result) {
				suspect(r, 0.6)
				r.Keepers = []keeper.Search{{Stack: 1, Samples: 8, Sweep: keeper.Sweep{Lost: make([]uint64, 5)}}}
			},
			[]FactCode{FactUnheld, FactSites},
			nil,
		},
		"it found some": {
			func(_ *verdict.Verdict, r *Result) {
				suspect(r, 0.6)
				r.Keepers = []keeper.Search{{Stack: 1, Samples: 8, Sweep: keeper.Sweep{Lost: make([]uint64, 4)}}}
			},
			[]FactCode{FactSites},
			nil,
		},
		"it had no time": {
			func(_ *verdict.Verdict, r *Result) {
				suspect(r, 0.6)
				r.Keepers = []keeper.Search{{Stack: 1, Samples: 8, Sweep: keeper.Sweep{
					Lost: make([]uint64, 8), Premise: keeper.PremiseBudget,
				}}}
			},
			[]FactCode{FactSites},
			nil,
		},
		"slower": {
			func(v *verdict.Verdict, _ *Result) { v.Shape.Misfit, v.Shape.Halves = 0.04, 0.6 },
			nil,
			[]FactCode{FactSlower},
		},
		"faster, uneven": {
			func(v *verdict.Verdict, _ *Result) { v.Shape.Misfit, v.Shape.Halves = 0.2, 1.6 },
			[]FactCode{FactFaster},
			[]FactCode{FactUneven},
		},
		"enough checks, whatever it lacked": {
			func(v *verdict.Verdict, r *Result) {
				v.Class, v.Shape.Lack = verdict.ClassLeak, verdict.LackWarmup
				r.Main.Findings.Streak = verdict.Streak{Found: 3, Needed: 3}
			},
			[]FactCode{FactChecks},
			nil,
		},
		"few checks": {
			func(v *verdict.Verdict, _ *Result) {
				v.Class, v.Reason = verdict.ClassSuspected, verdict.ReasonFewRechecks
				v.Streak = verdict.Streak{Found: 1, Needed: 3}
			},
			nil,
			[]FactCode{FactFewChecks},
		},
		"first epoch": {
			func(v *verdict.Verdict, r *Result) { v.Shape.Lack, r.Steps = verdict.LackWarmup, &Steps{Count: 9} },
			nil,
			[]FactCode{FactNoEpoch, lackCode(verdict.LackWarmup)},
		},
		"keeper grows": {
			func(_ *verdict.Verdict, r *Result) { suspect(r, 0.9); kept(r, 1, 30) },
			[]FactCode{FactKeeper, FactSites},
			nil,
		},
		"keeper of unknown growth": {
			func(_ *verdict.Verdict, r *Result) { suspect(r, 0.9); kept(r, 1, 0) },
			[]FactCode{FactKept, FactSites},
			nil,
		},
		"keeper of another stack": {
			func(_ *verdict.Verdict, r *Result) { suspect(r, 0.9); kept(r, 2, 30) },
			[]FactCode{FactSites},
			nil,
		},
		"keeper of a type": {
			func(_ *verdict.Verdict, r *Result) { cause(r, diagnosis.PythonObjects, 0.9); kept(r, 0, 30) },
			[]FactCode{FactKeeper},
			nil,
		},
		"nothing freed": {
			func(_ *verdict.Verdict, r *Result) { suspect(r, 0.9); holds(r, 1000, 1000) },
			[]FactCode{FactNoneFreed},
			nil,
		},
		"most freed": {
			func(_ *verdict.Verdict, r *Result) { suspect(r, 0.9); holds(r, 1000, 100) },
			[]FactCode{FactSites},
			nil,
		},
		"nothing freed, in bursts": {
			func(_ *verdict.Verdict, r *Result) {
				suspect(r, 0.9)
				holds(r, 1000, 1000)
				r.Pair.End.Heap.Bursts = 3
			},
			[]FactCode{FactSites},
			nil,
		},
		"few sites": {
			func(_ *verdict.Verdict, r *Result) { suspect(r, 0.3); cause(r, diagnosis.Undecided, 0.7) },
			nil,
			[]FactCode{FactFewSites, FactNoCause},
		},
		"recompiles": {
			func(_ *verdict.Verdict, r *Result) { suspect(r, 0.9); r.Main.Suspects[0].NewCode = 0.1 },
			[]FactCode{FactSites},
			[]FactCode{FactRecompiles},
		},
		"parts": {
			func(_ *verdict.Verdict, r *Result) {
				cause(r, diagnosis.Fragmentation, 0.3)
				cause(r, diagnosis.PageCache, 0.2)
				cause(r, diagnosis.Undecided, 0.05)
			},
			nil,
			[]FactCode{FactFreedKept, FactPageCache},
		},
		"fragmentation": {
			func(v *verdict.Verdict, r *Result) {
				v.Reason = verdict.ReasonFragmentation
				suspect(r, 0.9)
				cause(r, diagnosis.Fragmentation, 0.9)
			},
			nil, nil,
		},
		"a container gains entries, of growth without a cause": {
			func(_ *verdict.Verdict, r *Result) { appended(r, 0.9) },
			[]FactCode{FactGains},
			[]FactCode{FactNoCause},
		},
		"a container gains entries, of growth with a cause": {
			func(_ *verdict.Verdict, r *Result) { appended(r, 0.3) },
			nil,
			[]FactCode{FactNoCause},
		},
		"threads that never end": {
			func(_ *verdict.Verdict, r *Result) { r.Main.History.Timeline = threadsAt(3, 5, 5, 11) },
			[]FactCode{FactThreads},
			nil,
		},
		"threads of which some end": {
			func(_ *verdict.Verdict, r *Result) { r.Main.History.Timeline = threadsAt(3, 15, 14, 30) },
			nil, nil,
		},
		"a pool that starts once": {
			func(_ *verdict.Verdict, r *Result) { r.Main.History.Timeline = threadsAt(3, 19, 19, 19) },
			nil, nil,
		},
		"few threads": {
			func(_ *verdict.Verdict, r *Result) { r.Main.History.Timeline = threadsAt(3, 5, 9, 10) },
			nil, nil,
		},
		"threads of the warm-up": {
			func(_ *verdict.Verdict, r *Result) {
				r.Main.History.Timeline = threadsAt(1, 19, 19, 19)
				r.Main.Window.From = 10 * time.Second
			},
			nil, nil,
		},
		"freed memory beside kept objects": {
			func(_ *verdict.Verdict, r *Result) {
				cause(r, diagnosis.Fragmentation, 0.75)
				r.Keepers = []keeper.Search{keepsType(8, 5)}
			},
			[]FactCode{FactPins},
			nil,
		},
		"freed memory beside objects without a known keeper": {
			func(_ *verdict.Verdict, r *Result) { cause(r, diagnosis.Fragmentation, 0.75) },
			nil,
			[]FactCode{FactFreedKept},
		},
		"little freed memory beside kept objects": {
			func(_ *verdict.Verdict, r *Result) {
				cause(r, diagnosis.Fragmentation, 0.4)
				r.Keepers = []keeper.Search{keepsType(8, 5)}
			},
			nil,
			[]FactCode{FactFreedKept},
		},
		"a stack's objects are kept": {
			func(v *verdict.Verdict, r *Result) {
				v.Reason = verdict.ReasonFragmentation
				few, most := keepsType(3, 5), keepsType(3, 5)
				few.Type, few.Stack, most.Type, most.Stack = "", 5, "", 6
				few.Paths[0].Samples = 2
				most.Paths[0].Links[0].PerMinute = 2
				r.Keepers = []keeper.Search{few, most}
			},
			nil, nil,
		},
		"flat": {
			func(v *verdict.Verdict, _ *Result) {
				v.Class, v.Shape.Misfit, v.Shape.Halves = verdict.ClassPlateau, 0.01, 1
			},
			nil, nil,
		},
	} {
		v, r := growing()
		c.change(&v, r)
		k := known{Verdict: v, result: r}
		e := k.evidence()
		if !slices.Equal(codesOf(e.For), c.For) || !slices.Equal(codesOf(e.Against), c.Against) {
			t.Errorf("%s: for %v, against %v", name, codesOf(e.For), codesOf(e.Against))
		}
	}
}

// appended adds a list that loses no entry, where so much of the growth has no cause.
func appended(r *Result, undecided float64) {
	r.Main.Diagnoses = []diagnosis.Diagnosis{{Cause: diagnosis.Undecided, Share: undecided}}
	r.Keepers = []keeper.Search{keepsType(8, 5)}
	r.Keepers[0].Paths[0].Links[0].AppendOnly = true
}

// threadsAt are samples with so many threads, 10 seconds apart, and one without a number between.
func threadsAt(counts ...int64) (all growth.Timeline) {
	for i, n := range counts {
		at := time.Duration(i) * 10 * time.Second
		all = append(all, growth.Sample{Elapsed: at, Threads: n},
			growth.Sample{Elapsed: at + 5*time.Second, Threads: growth.Unknown})
	}
	return all
}

// keepsType is a search that found a list, which has gained 160 entries in 10 seconds.
func keepsType(paths, samples int) keeper.Search {
	return keeper.Search{
		Type: "torch.Tensor", Samples: samples + 3,
		Paths: []keeper.Path{{
			Samples: paths, Links: []keeper.Link{{Type: "list", Entries: 900, PerMinute: 960, GrowthS: 10}},
		}},
	}
}

// TestPins has how fast the container gains entries.
func TestPins(t *testing.T) {
	for name, c := range map[string]struct {
		change    func(*keeper.Search)
		perMinute float64
	}{
		"most samples":          {func(*keeper.Search) {}, 960},
		"few samples":           {func(s *keeper.Search) { s.Paths[0].Samples = 3 }, 0},
		"few entries":           {func(s *keeper.Search) { s.Paths[0].Links[0].GrowthS = 1 }, 0},
		"read once":             {func(s *keeper.Search) { s.Paths[0].Links[0] = keeper.Link{Entries: 900} }, 0},
		"memory without a type": {func(s *keeper.Search) { s.Type, s.Stack = "", 5 }, 960},
	} {
		s := keepsType(8, 5)
		c.change(&s)
		k := known{result: &Result{Keepers: []keeper.Search{s}}}
		k.Reason = verdict.ReasonFragmentation
		if f, ok := pins(&k); !ok || f.PerMinute != c.perMinute {
			t.Errorf("%s: %+v, %t", name, f, ok)
		}
	}

	// Where the verdict is not about the freed memory, the container must grow.
	for perMinute, want := range map[float64]bool{0: false, 900: true} {
		s := keepsType(8, 5)
		s.Paths[0].Links[0] = keeper.Link{Entries: 900, PerMinute: perMinute, GrowthS: 1}
		r := Result{Keepers: []keeper.Search{s}}
		r.Main.Diagnoses = []diagnosis.Diagnosis{{Cause: diagnosis.Fragmentation, Share: 0.75}}
		if f, ok := pins(&known{result: &r}); ok != want {
			t.Errorf("%v entries/min: %+v, %t", perMinute, f, ok)
		}
	}
}

// TestGains has a container that only gains entries while memory is flat.
func TestGains(t *testing.T) {
	for name, c := range map[string]struct {
		class  verdict.Class
		change func(*keeper.Search)
		want   []FactCode
	}{
		"flat":           {verdict.ClassPlateau, func(*keeper.Search) {}, []FactCode{FactGains}},
		"too noisy":      {verdict.ClassTooShort, func(*keeper.Search) {}, []FactCode{FactGains}},
		"it grows":       {verdict.ClassSaturating, func(*keeper.Search) {}, nil},
		"loses some":     {verdict.ClassPlateau, func(s *keeper.Search) { s.Paths[0].Links[0].AppendOnly = false }, nil},
		"of before":      {verdict.ClassPlateau, func(s *keeper.Search) { s.IsEarlier = true }, nil},
		"few samples":    {verdict.ClassPlateau, func(s *keeper.Search) { s.Paths[0].Samples = 3 }, nil},
		"a short moment": {verdict.ClassPlateau, func(s *keeper.Search) { s.Paths[0].Links[0].GrowthS = 10 }, nil},
	} {
		s := keepsType(8, 5)
		l := &s.Paths[0].Links[0]
		l.AppendOnly, l.GrowthS = true, 100
		c.change(&s)
		k := known{result: &Result{Keepers: []keeper.Search{s}}}
		k.Class = c.class
		e := k.evidence()
		gained := slices.DeleteFunc(codesOf(e.For), func(f FactCode) bool { return f != FactGains })
		if !slices.Equal(gained, c.want) {
			t.Errorf("%s: %v", name, e.For)
		}
	}
}

// TestGrowthEnded has no rates of containers where the growth has ended.
func TestGrowthEnded(t *testing.T) {
	trace := leaking()
	const end = 600 * time.Second
	process := trace.History.Main()
	for i := range process.Timeline {
		s := &process.Timeline[i]
		s.RSS = min(s.RSS, int64(1024+end.Seconds())*mib)
	}
	for _, s := range trace.Snapshots {
		h := &s.Holdings[0]
		h.InuseBytes = min(h.InuseBytes, int64(end.Seconds())*mib)
	}
	found := keepsType(8, 5)
	l := &found.Paths[0].Links[0]
	l.AppendOnly, l.GrowthS = true, 100
	found.PID, found.Elapsed = trainerPID, end
	trace.Keepers = []keeper.Search{found}

	r := trace.Conclude(trace.Judge())
	if r.Main.Reason != verdict.ReasonGrowthEnded || len(r.Main.Suspects) != 1 {
		t.Fatalf("%s (%s), %+v", r.Main.Class, r.Main.Reason, r.Main.Suspects)
	}
	if _, ok := gains(&known{Verdict: r.Main.Verdict, result: &r}); ok {
		t.Error("it may gain no entries any more")
	}
	got := r.Keepers[0].Paths[0].Links[0]
	if got.PerMinute != 0 || got.AppendOnly || l.PerMinute == 0 {
		t.Errorf("%+v of %+v", got, *l)
	}
}

// TestElsewhere: where other memory grows than the memory of the process, its call sites and kinds
// of memory are no evidence.
func TestElsewhere(t *testing.T) {
	for _, reason := range []verdict.Reason{verdict.ReasonWorkers, verdict.ReasonOutside} {
		trace := leaking()
		r := trace.Conclude(trace.Judge())
		if e := r.Evidence; len(e.Excluded) == 0 || !slices.Contains(codesOf(e.For), FactSites) {
			t.Fatalf("%+v", e)
		}
		r.Main.Reason = reason

		e := trace.evidence(&r)
		if len(e.Excluded) > 0 || slices.Contains(codesOf(e.For), FactSites) {
			t.Errorf("%s: %+v", reason, e)
		}
		if !slices.Contains(codesOf(e.For), FactStraight) {
			t.Errorf("%s: the line is straight all the same: %+v", reason, e)
		}
	}
}

// TestLackCodes has a code for each lack.
func TestLackCodes(t *testing.T) {
	for _, l := range []verdict.Lack{
		verdict.LackLength, verdict.LackEpoch, verdict.LackEarly, verdict.LackWarmup, verdict.LackSlow,
		verdict.LackAge, verdict.LackNew, verdict.LackSteady,
	} {
		if !slices.Contains(FactCodes, lackCode(l)) {
			t.Errorf("%s has no code", l)
		}
	}
}

// TestExcluded excludes explanations that were checked and do not grow, and no others.
func TestExcluded(t *testing.T) {
	trace := leaking()
	r := trace.Conclude(trace.Judge())
	k := known{Verdict: r.Main.Verdict, result: &r}
	has := func(code ExclusionCode) bool {
		return slices.ContainsFunc(k.excluded(trace), func(x Exclusion) bool { return x.Code == code })
	}

	var excluded []ExclusionCode
	for _, x := range r.Evidence.Excluded {
		excluded = append(excluded, x.Code)
	}
	if want := []ExclusionCode{ExcludedFree, ExcludedFiles, ExcludedShared}; !slices.Equal(excluded, want) {
		t.Errorf("without a GPU and children: %v, want %v", excluded, want)
	}
	r.Main.GPU = &gpu.Judgement{Verdict: verdict.Verdict{Class: verdict.ClassGrowing}}
	if has(ExcludedGPU) {
		t.Error("GPU memory grows")
	}
	r.Main.GPU.Class = verdict.ClassPlateau
	if !has(ExcludedGPU) {
		t.Error("GPU memory is flat")
	}

	child := &growth.ProcessHistory{Last: trace.lastElapsed()}
	child.Timeline = growth.Timeline{{RSS: 50 * mib}, {Elapsed: child.Last, RSS: 50 * mib}}
	trace.History.Processes = append(trace.History.Processes, child)
	if !has(ExcludedChildren) {
		t.Error("the child is flat")
	}
	child.Timeline[1].RSS += 10 * mib
	if has(ExcludedChildren) {
		t.Error("the child grows")
	}

	r.Scanned.End.Losses = growth.Losses{{Kind: growth.LossLiveFull, Count: 1}}
	if has(ExcludedFree) || !has(ExcludedFiles) {
		t.Errorf("free memory is not known: %v", k.excluded(trace))
	}
	for i := range r.Rows {
		r.Rows[i].Kind = growth.KindFile
	}
	if has(ExcludedFiles) {
		t.Error("files are all of the growth")
	}
	for i := range r.Rows {
		r.Rows[i].Kind = growth.KindUnexplained
	}
	if has(ExcludedFiles) {
		t.Error("the growth is not explained")
	}
}
