package trend

import (
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// burstTrace is heapTrace with ample evidence from bursts: samples a second are what is born in
// each but the first, and what the heap has grown by is known.
func burstTrace(births ...float64) []*growth.Snapshot {
	trace := heapTrace(0, births...)
	var resident float64
	for i, s := range trace {
		s.Heap = growth.HeapCoverage{
			Bursts: 20 * (i + 1), Open: time.Duration(i+1) * 50 * time.Millisecond,
			Extrapolation: 20,
		}
		s.Holdings[0].Evidence = &growth.BurstEvidence{
			Bursts: 20, Hazard: deathless(1e6), SizeClass: 48,
		}
		for j := range s.Holdings {
			s.Holdings[j].Samples = int64(s.Holdings[j].InuseBytes / 1000)
		}
		resident += births[i] * 1000
		s.Holdings = append(
			s.Holdings,
			growth.Holding{
				Stack: growth.NamedStack(1, "[heap]"), Kind: growth.KindRetained,
				ResidentBytes: 1e9 + int64(resident),
			},
		)
	}
	return trace
}

// deathless has so many object-seconds of exposure at each age, and no deaths.
func deathless(exposure float64) (h growth.HazardRate) {
	for age := time.Second; age < 48*time.Hour; age *= 2 {
		h.At(age).ExposureSeconds = exposure
	}
	return h
}

// trendOfFirst is that of the first stack.
func trendOfFirst(t *testing.T, trace []*growth.Snapshot) StackTrend {
	t.Helper()
	for _, trend := range JudgeStacks(trace, lasting(0, len(trace)-1), math.NaN()) {
		if trend.Stack == first {
			return trend
		}
	}
	t.Fatal("it was not judged")
	return StackTrend{}
}

func TestUndecided(t *testing.T) {
	last := func(trace []*growth.Snapshot) *growth.Snapshot { return trace[len(trace)-1] }
	for name, c := range map[string]struct {
		change func(s []*growth.Snapshot)
		want   growth.UndecidedReason
		longer bool
	}{
		"all of it":           {func([]*growth.Snapshot) {}, "", false},
		"probed all the time": {func(s []*growth.Snapshot) { last(s).Holdings[0].Evidence, s[0].Holdings[0].Evidence = nil, nil }, "", false},
		"untrackable":         {func(s []*growth.Snapshot) { last(s).Heap.Untrackable = "the allocator is jemalloc" }, growth.UndecidedUntrackable, false},
		"19 samples":          {func(s []*growth.Snapshot) { last(s).Holdings[0].Samples = 19 }, growth.UndecidedFewSamples, true},
		"no samples":          {func(s []*growth.Snapshot) { last(s).Holdings[0].Samples = 0 }, growth.UndecidedFewSamples, true},
		"two bursts":          {func(s []*growth.Snapshot) { last(s).Holdings[0].Evidence.Bursts = 2 }, growth.UndecidedFewBursts, true},
		"no exposure":         {func(s []*growth.Snapshot) { last(s).Holdings[0].Evidence.Hazard = growth.HazardRate{} }, growth.UndecidedUnseenDeaths, true},
		"what is in them stays": {func(s []*growth.Snapshot) {
			*last(s).Holdings[0].Evidence = growth.BurstEvidence{Bursts: 20, Fingerprinted: 40, Unchanged: 38, Diversity: 0.9, SizeClass: 48}
		}, "", false},
		"what is in them changes": {func(s []*growth.Snapshot) {
			*last(s).Holdings[0].Evidence = growth.BurstEvidence{Bursts: 20, Fingerprinted: 40, Unchanged: 30, Diversity: 0.9, SizeClass: 48}
		}, growth.UndecidedUnseenDeaths, true},
		"all have one fingerprint": {func(s []*growth.Snapshot) {
			*last(s).Holdings[0].Evidence = growth.BurstEvidence{Bursts: 20, Fingerprinted: 40, Unchanged: 40, Diversity: 0.1, SizeClass: 48}
		}, growth.UndecidedUnseenDeaths, true},
		"few fingerprints": {func(s []*growth.Snapshot) {
			*last(s).Holdings[0].Evidence = growth.BurstEvidence{Bursts: 20, Fingerprinted: 4, Unchanged: 4, Diversity: 1, SizeClass: 48}
		}, growth.UndecidedUnseenDeaths, true},
		"none when they were young": {func(s []*growth.Snapshot) { *last(s).Holdings[0].Evidence.Hazard.At(0) = growth.DeathCounts{} }, growth.UndecidedUnseenDeaths, true},
		"little exposure":           {func(s []*growth.Snapshot) { last(s).Holdings[0].Evidence.Hazard = deathless(0.5) }, growth.UndecidedUnseenDeaths, true},
		"the heap is flat":          {func(s []*growth.Snapshot) { last(s).Holdings[1].ResidentBytes = 1e9 }, growth.UndecidedHeapGrowth, false},
		"a larger one": {func(s []*growth.Snapshot) {
			other := last(s).Holdings[0]
			other.Stack, other.InuseBytes, other.Births = second, 2*other.InuseBytes, nil
			for _, b := range last(s).Holdings[0].Births {
				other.Births = append(other.Births, growth.Birth{Bin: b.Bin, InuseBytes: 2 * b.InuseBytes, Variance: 2 * b.Variance})
			}
			last(s).Holdings = append(last(s).Holdings, other)
			last(s).Holdings[1].ResidentBytes *= 2
		}, growth.UndecidedSizeClass, false},
	} {
		trace := burstTrace(0, 100, 100, 100, 100)
		c.change(trace)
		got, trend := trendOfFirst(t, trace), growth.TrendAccumulating
		if c.want != "" {
			trend = growth.TrendUndecided
		}
		if got.Trend != trend || got.Undecided != c.want || (got.Longer > 0) != c.longer {
			t.Errorf("%s: %s, doubt %q, longer %v; want doubt %q", name, got.Trend, got.Undecided,
				got.Longer, c.want)
		}
	}
}

func TestUndecidedLonger(t *testing.T) {
	trace := burstTrace(0, 100, 100, 100, 100)
	trace[4].Holdings[0].Samples = 5
	if got := trendOfFirst(t, trace); got.Longer != 12*time.Second { // four times the 4 s
		t.Errorf("for four times the samples: %v more", got.Longer)
	}
}

func TestBurstInterval(t *testing.T) {
	t.Run("a sample represents the time between bursts", func(t *testing.T) {
		alone, windowed := heapTrace(0, 0, 100, 100, 100, 100), burstTrace(0, 100, 100, 100, 100)
		full, got := onlyTrend(t, alone, lasting(0, 4)), trendOfFirst(t, windowed)
		if full.Growth != got.Growth || got.High < full.High+15_000 || got.Low > full.Low {
			t.Errorf("%+v, all probed: %+v", got, full)
		}
	})

	t.Run("the window begins when all growth is from bursts", func(t *testing.T) {
		trace := burstTrace(0, 100, 100, 100, 100)
		trace[4].Heap.Since, trace[4].Heap.Lag = 500*time.Millisecond, time.Second
		if got := trendOfFirst(t, trace); got.Growth != 200_000 {
			t.Errorf("growth %v, want that of the last 2 s", got.Growth)
		}
		trace[4].Heap.Lag = time.Minute
		if got := JudgeStacks(trace, lasting(0, 4), 0); got != nil {
			t.Errorf("judged before anything was mature: %+v", got)
		}
	})

	t.Run("the ends of the window are off by part of a burst's time", func(t *testing.T) {
		short, long := burstTrace(0, 100, 100, 100, 100), burstTrace(0, 100, 100, 100, 100)
		long[4].Heap.Open *= 40 // 2 s for each burst of the 4 s that are judged
		if a, b := trendOfFirst(t, short), trendOfFirst(t, long); b.High-b.Growth < 2*(a.High-a.Growth) {
			t.Errorf("%+v\n%+v", a, b)
		}
	})

	t.Run("memory alive at both ends cancels at any dispersion", func(t *testing.T) {
		trace := burstTrace(0, 100, 100, 100, 100)
		w, _ := rangeOf(trace, lasting(1, 4))
		h := stackSeries{
			kind: growth.KindHeap, start: w.start().Holdings[0], end: w.end().Holdings[0],
		}
		same := w.sampledChange(&h)
		h.start.Evidence = &growth.BurstEvidence{Dispersion: 3}
		h.start.Variance *= 3
		h.start.InuseBytes += 50_000 // freed since
		h.start.Variance += 3 * 50 * 1e6
		if got := w.sampledChange(&h); same.freed.Variance != 0 ||
			math.Abs(got.freed.Variance/50e6-1) > 1e-9 {
			t.Errorf("variance of what was freed %v, want that of 50 samples", got.freed.Variance)
		}
	})
}

func TestLabelUndecided(t *testing.T) {
	trends := []StackTrend{
		{
			Stack: first, Kind: growth.KindHeap, Growth: 5, Trend: growth.TrendUndecided,
			Undecided: growth.UndecidedHeapGrowth, Longer: time.Minute,
		},
	}
	grown := []growth.Holding{
		{Stack: first, Kind: growth.KindHeap},
		{
			Stack: second, Kind: growth.KindHeap, Trend: growth.TrendTransient,
			Undecided: growth.UndecidedHeapGrowth,
		},
	}
	Label(grown, trends)
	if h := grown[0]; h.Trend != growth.TrendUndecided ||
		h.Undecided != growth.UndecidedHeapGrowth ||
		h.Longer != time.Minute {
		t.Errorf("%+v", h)
	}
	if h := grown[1]; h.Trend != "" || h.Undecided != "" {
		t.Errorf("what was not judged: %+v", h)
	}
	if got := Suspects(trends, nil); len(got) != 0 {
		t.Errorf("suspects: %+v", got)
	}
}

func TestCrossCheck(t *testing.T) {
	t.Run("fingerprints decide within a size class", func(t *testing.T) {
		proven := growth.BurstEvidence{
			Bursts: 20, Fingerprinted: 40, Unchanged: 40, Diversity: 1, SizeClass: 48,
		}
		probed := growth.BurstEvidence{
			Bursts: 20, Hazard: deathless(1e6), Fingerprinted: 40, Unchanged: 2, Diversity: 1,
			SizeClass: 48,
		}
		for name, c := range map[string]struct {
			smaller, larger         growth.BurstEvidence
			wantSmaller, wantLarger growth.UndecidedReason
		}{
			"the smaller is proven": {proven, probed, "", growth.UndecidedSizeClass},
			"the larger is proven":  {probed, proven, growth.UndecidedSizeClass, ""},
			"both are":              {proven, proven, "", ""},
			"neither is":            {probed, probed, growth.UndecidedSizeClass, ""},
		} {
			trace := burstTrace(0, 100, 100, 100, 100)
			end := trace[4]
			*end.Holdings[0].Evidence = c.smaller
			other := end.Holdings[0]
			other.Stack, other.Births, other.Evidence = second, nil, &c.larger
			for _, b := range end.Holdings[0].Births {
				other.Births = append(
					other.Births,
					growth.Birth{
						Bin: b.Bin, InuseBytes: b.InuseBytes * 1.2, Variance: b.Variance * 1.2,
					},
				)
			}
			end.Holdings[1].ResidentBytes += 1e6 // there is room for both
			end.Holdings = append(end.Holdings, other)
			for _, trend := range JudgeStacks(trace, lasting(0, 4), math.NaN()) {
				want, which := c.wantSmaller, "smaller"
				if trend.Stack == second {
					want, which = c.wantLarger, "larger"
				}
				if trend.Kind == growth.KindHeap && trend.Undecided != want {
					t.Errorf("%s: of the %s the doubt is %q, want %q", name, which, trend.Undecided,
						want)
				}
			}
		}
	})

	t.Run("the growth of the heap goes to the best evidence first", func(t *testing.T) {
		trace := burstTrace(0, 100, 100, 100, 100)
		end := trace[4]
		other := end.Holdings[0]
		other.Stack, other.Births = second, nil
		other.Evidence = &growth.BurstEvidence{Bursts: 20, Hazard: deathless(1e6), SizeClass: 64}
		for _, b := range end.Holdings[0].Births {
			other.Births = append(
				other.Births,
				growth.Birth{
					Bin: b.Bin, InuseBytes: b.InuseBytes * 0.8, Variance: b.Variance * 0.8,
				},
			)
		}
		end.Holdings = append(end.Holdings, other)
		for _, trend := range JudgeStacks(trace, lasting(0, 4), math.NaN()) {
			want := growth.TrendAccumulating
			if trend.Stack == second {
				want = growth.TrendUndecided // the heap grew by what the first alone holds
			}
			if trend.Kind == growth.KindHeap && trend.Trend != want {
				t.Errorf("stack %d: %s", trend.Stack.ID, trend.Trend)
			}
		}
	})
}
