package trend

import (
	"math"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// burstTrace is heapTrace with ample evidence from bursts: samples a second are born in each but
// the first, and the growth of the heap is known.
func burstTrace(births ...float64) []*growth.Snapshot {
	trace := heapTrace(0, births...)
	var resident float64
	for i, s := range trace {
		s.Heap = growth.HeapCoverage{
			Bursts: 20 * (i + 1), Open: time.Duration(i+1) * 50 * time.Millisecond,
			Extrapolation: 20,
		}
		s.Holdings[0].Evidence = &growth.BurstEvidence{
			Bursts: 20, HazardRate: deathless(1e6), SizeClass: 48,
		}
		s.Holdings[0].Samples = s.Holdings[0].InuseBytes / 1000
		resident += births[i] * 1000
		s.Holdings = append(s.Holdings, growth.Holding{
			Stack: growth.NamedStack(1, "[heap]"), Kind: growth.KindRetained,
			ResidentBytes: 1e9 + int64(resident),
		})
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

// addSecond adds the second stack, which holds so many times the memory of the first.
func addSecond(end *growth.Snapshot, times float64, evidence growth.BurstEvidence) {
	other := end.Holdings[0]
	other.Stack, other.Births, other.Evidence = second, nil, &evidence
	for _, b := range end.Holdings[0].Births {
		other.AddBirth(growth.Birth{
			Bin: b.Bin, InuseBytes: times * b.InuseBytes, Variance: times * b.Variance,
		})
	}
	end.Holdings = append(end.Holdings, other)
}

// fingerprinted has so many unchanged of 40, and no exposure.
func fingerprinted(unchanged int, diversity float64) growth.BurstEvidence {
	return growth.BurstEvidence{
		Bursts: 20, Fingerprinted: 40, Unchanged: unchanged, Diversity: diversity, SizeClass: 48,
	}
}

func TestUndecided(t *testing.T) {
	few := fingerprinted(4, 1)
	few.Fingerprinted = 4
	evidence := func(e growth.BurstEvidence) func(end *growth.Snapshot) {
		return func(end *growth.Snapshot) { *end.Holdings[0].Evidence = e }
	}
	for name, c := range map[string]struct {
		change func(end *growth.Snapshot)
		want   growth.UndecidedReason
		longer bool
	}{
		"all of it":   {func(*growth.Snapshot) {}, "", false},
		"untrackable": {func(end *growth.Snapshot) { end.Heap.Untrackable = "jemalloc" }, growth.UndecidedUntrackable, false},
		"19 samples":  {func(end *growth.Snapshot) { end.Holdings[0].Samples = 19 }, growth.UndecidedFewSamples, true},
		"no samples":  {func(end *growth.Snapshot) { end.Holdings[0].Samples = 0 }, growth.UndecidedFewSamples, true},
		"two bursts":  {func(end *growth.Snapshot) { end.Holdings[0].Evidence.Bursts = 2 }, growth.UndecidedFewBursts, true},
		"no exposure": {evidence(growth.BurstEvidence{Bursts: 20}), growth.UndecidedUnseenDeaths, true},
		"none when they were young": {
			func(end *growth.Snapshot) { *end.Holdings[0].Evidence.HazardRate.At(0) = growth.DeathCounts{} },
			growth.UndecidedUnseenDeaths, true,
		},
		"little exposure":          {evidence(growth.BurstEvidence{Bursts: 20, HazardRate: deathless(0.5)}), growth.UndecidedUnseenDeaths, true},
		"what is in them stays":    {evidence(fingerprinted(38, 0.9)), "", false},
		"what is in them changes":  {evidence(fingerprinted(30, 0.9)), growth.UndecidedUnseenDeaths, true},
		"all have one fingerprint": {evidence(fingerprinted(40, 0.1)), growth.UndecidedUnseenDeaths, true},
		"few fingerprints":         {evidence(few), growth.UndecidedUnseenDeaths, true},
		"the heap is flat":         {func(end *growth.Snapshot) { end.Holdings[1].ResidentBytes = 1e9 }, growth.UndecidedHeapGrowth, false},
	} {
		trace := burstTrace(0, 100, 100, 100, 100)
		c.change(trace[4])
		got, trend := trendOfFirst(t, trace), growth.TrendAccumulating
		if c.want != "" {
			trend = growth.TrendUndecided
		}
		if got.Trend != trend || got.Undecided != c.want || (got.Longer > 0) != c.longer {
			t.Errorf("%s: %s, undecided %q, longer %v; want %q", name, got.Trend, got.Undecided,
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
			stack: w.end().Holdings[0].Stack, kind: growth.KindHeap,
			start: w.start().Holdings[0], end: w.end().Holdings[0],
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

func TestCrossCheck(t *testing.T) {
	t.Run("fingerprints decide within a size class", func(t *testing.T) {
		proven, probed := fingerprinted(40, 1), fingerprinted(2, 1)
		probed.HazardRate = deathless(1e6)
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
			*trace[4].Holdings[0].Evidence = c.smaller
			addSecond(trace[4], 1.2, c.larger)
			trace[4].Holdings[1].ResidentBytes += 1e6 // there is room for both
			for _, trend := range JudgeStacks(trace, lasting(0, 4), math.NaN()) {
				want, which := c.wantSmaller, "smaller"
				if trend.Stack == second {
					want, which = c.wantLarger, "larger"
				}
				if trend.Kind == growth.KindHeap && trend.Undecided != want {
					t.Errorf("%s: of the %s the reason is %q, want %q", name, which,
						trend.Undecided,
						want)
				}
			}
		}
	})

	t.Run("the growth of the heap goes to the best evidence first", func(t *testing.T) {
		trace := burstTrace(0, 100, 100, 100, 100)
		addSecond(trace[4], 0.8,
			growth.BurstEvidence{Bursts: 20, HazardRate: deathless(1e6), SizeClass: 64})
		for _, trend := range JudgeStacks(trace, lasting(0, 4), math.NaN()) {
			want := growth.TrendAccumulating
			if trend.Stack == second {
				want = growth.TrendUndecided // the heap grew by the bytes of the first alone
			}
			if trend.Kind == growth.KindHeap && trend.Trend != want {
				t.Errorf("stack %d: %s", trend.Stack.ID, trend.Trend)
			}
		}
	})

	t.Run("the growth of the heap goes to what is exact first", func(t *testing.T) {
		trace := burstTrace(0, 100, 100, 100, 100)
		end := trace[4]
		end.Holdings[1].ResidentBytes -= 300e3
		end.Holdings = append(end.Holdings, growth.Holding{
			Stack: second, Kind: growth.KindHeap, InuseBytes: 300e3, ResidentBytes: 300e3,
		})
		if got := trendOfFirst(t, trace); got.Undecided != growth.UndecidedHeapGrowth {
			t.Errorf("a quarter of its growth is the heap's: %s %q", got.Trend, got.Undecided)
		}
	})
}

// Memory is transient by its youth only where the few bursts of a short window do not explain it.
func TestTransientByChance(t *testing.T) {
	for _, c := range []struct {
		name     string
		variance float64 // of each birth, times its bytes squared
		want     growth.Trend
	}{
		{"many bursts", 1e-4, growth.TrendTransient},
		{"a burst or two in each half", 0.1, growth.TrendAccumulating},
	} {
		trace := burstTrace(0, 20, 20, 100, 100)
		for i := range trace[4].Holdings[0].Births {
			b := &trace[4].Holdings[0].Births[i]
			b.Variance = c.variance * b.InuseBytes * b.InuseBytes
		}
		if got := trendOfFirst(t, trace); got.Trend != c.want {
			t.Errorf("%s: %s, want %s (age %.2f)", c.name, got.Trend, c.want, got.Age)
		}
	}
}

// The first objects of bursts may count for many times the slowdown that is known later.
func TestFirstBurstsAreNoSawtooth(t *testing.T) {
	trace := burstTrace(0, 100, 100, 100, 100)
	for _, s := range trace {
		s.Heap.Slowdown = 1
	}

	const slowdown = 30
	early := trace[1]
	before := early.Heap.Extrapolation
	early.Heap.Slowdown, early.Heap.Extrapolation = slowdown, 1+slowdown*(before-1)
	h := &early.Holdings[0]
	h.InuseBytes = int64(float64(h.InuseBytes) * early.Heap.Extrapolation / before)
	h.Evidence.Bytes = float64(h.InuseBytes)

	if got := trendOfFirst(t, trace); got.Trend != growth.TrendAccumulating {
		t.Errorf("it is %s", got.Trend)
	}
}
