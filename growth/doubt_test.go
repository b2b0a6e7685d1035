package growth

import (
	"math"
	"testing"
	"time"
)

// windowedTrace is heapTrace watched in windows for so long, all of it well seen: samples a second are what is born in each but the
// first, and what the heap has grown by is known.
func windowedTrace(births ...float64) []*Snapshot {
	trace := heapTrace(0, births...)
	var resident float64
	for i, s := range trace {
		s.Watch = Watch{Windows: 20 * (i + 1), Open: time.Duration(i+1) * 50 * time.Millisecond, Factor: 20}
		s.Holdings[0].Sighting = &Sighting{Windows: 20, Hazard: watchedFor(1e6), SizeClass: 48}
		for j := range s.Holdings {
			s.Holdings[j].Samples = int64(s.Holdings[j].InuseBytes / 1000)
		}
		resident += births[i] * 1000
		s.Holdings = append(s.Holdings, Holding{Stack: NamedStack(1, "[heap]"), Kind: KindRetained, ResidentBytes: 1e9 + int64(resident)})
	}
	return trace
}

// watchedFor is of objects that were watched at each age for so many object-seconds, and none died.
func watchedFor(exposure float64) (h Hazard) {
	for i := range h.ages {
		h.ages[i].Exposure = exposure
	}
	return h
}

// trendOfFirst is that of the first stack.
func trendOfFirst(t *testing.T, trace []*Snapshot) StackTrend {
	t.Helper()
	for _, trend := range JudgeStacks(trace, lasting(0, len(trace)-1), math.NaN()) {
		if trend.Stack == first {
			return trend
		}
	}
	t.Fatal("it was not judged")
	return StackTrend{}
}

func TestGrowthSeenInWindowsIsBelievedOnlyWithItsEvidence(t *testing.T) {
	last := func(trace []*Snapshot) *Snapshot { return trace[len(trace)-1] }
	for name, c := range map[string]struct {
		change func(s []*Snapshot)
		want   Doubt
		longer bool
	}{
		"all of it":         {func([]*Snapshot) {}, "", false},
		"watched all along": {func(s []*Snapshot) { last(s).Holdings[0].Sighting, s[0].Holdings[0].Sighting = nil, nil }, "", false},
		"cannot be seen":    {func(s []*Snapshot) { last(s).Watch.Blind = "the allocator is jemalloc" }, DoubtBlind, false},
		"19 samples":        {func(s []*Snapshot) { last(s).Holdings[0].Samples = 19 }, DoubtSamples, true},
		"no samples":        {func(s []*Snapshot) { last(s).Holdings[0].Samples = 0 }, DoubtSamples, true},
		"two windows":       {func(s []*Snapshot) { last(s).Holdings[0].Sighting.Windows = 2 }, DoubtWindows, true},
		"no exposure":       {func(s []*Snapshot) { last(s).Holdings[0].Sighting.Hazard = Hazard{} }, DoubtExposure, true},
		"what is in them stays": {func(s []*Snapshot) {
			*last(s).Holdings[0].Sighting = Sighting{Windows: 20, Printed: 40, Same: 38, Differ: 0.9, SizeClass: 48}
		}, "", false},
		"what is in them changes": {func(s []*Snapshot) {
			*last(s).Holdings[0].Sighting = Sighting{Windows: 20, Printed: 40, Same: 30, Differ: 0.9, SizeClass: 48}
		}, DoubtExposure, true},
		"all look the same": {func(s []*Snapshot) {
			*last(s).Holdings[0].Sighting = Sighting{Windows: 20, Printed: 40, Same: 40, Differ: 0.1, SizeClass: 48}
		}, DoubtExposure, true},
		"nobody has looked into them": {func(s []*Snapshot) {
			*last(s).Holdings[0].Sighting = Sighting{Windows: 20, Printed: 4, Same: 4, Differ: 1, SizeClass: 48}
		}, DoubtExposure, true},
		"none when they were young": {func(s []*Snapshot) { *last(s).Holdings[0].Sighting.Hazard.At(0) = Fate{} }, DoubtExposure, true},
		"little exposure":           {func(s []*Snapshot) { last(s).Holdings[0].Sighting.Hazard = watchedFor(0.5) }, DoubtExposure, true},
		"the heap is flat":          {func(s []*Snapshot) { last(s).Holdings[1].ResidentBytes = 1e9 }, DoubtHeap, false},
		"a larger one": {func(s []*Snapshot) {
			other := last(s).Holdings[0]
			other.Stack, other.InuseBytes, other.Births = second, 2*other.InuseBytes, nil
			for _, b := range last(s).Holdings[0].Births {
				other.Births = append(other.Births, Birth{b.Bin, 2 * b.InuseBytes, 2 * b.Variance})
			}
			last(s).Holdings = append(last(s).Holdings, other)
			last(s).Holdings[1].ResidentBytes *= 2
		}, DoubtClass, false},
	} {
		trace := windowedTrace(0, 100, 100, 100, 100)
		c.change(trace)
		got, trend := trendOfFirst(t, trace), TrendAccumulating
		if c.want != "" {
			trend = TrendUndecided
		}
		if got.Trend != trend || got.Doubt != c.want || (got.Longer > 0) != c.longer {
			t.Errorf("%s: %s, doubt %q, longer %v; want doubt %q", name, got.Trend, got.Doubt, got.Longer, c.want)
		}
	}
}

func TestALongerWatchIsAdvisedForWhatIsMissing(t *testing.T) {
	trace := windowedTrace(0, 100, 100, 100, 100)
	trace[4].Holdings[0].Samples = 5
	if got := trendOfFirst(t, trace); got.Longer != 12*time.Second { // four times the 4 s
		t.Errorf("for four times the samples: %v more", got.Longer)
	}
}

func TestOneSampleOfAWindowStandsForTheTimeBetweenWindows(t *testing.T) {
	alone, windowed := heapTrace(0, 0, 100, 100, 100, 100), windowedTrace(0, 100, 100, 100, 100)
	full, got := onlyTrend(t, alone, lasting(0, 4)), trendOfFirst(t, windowed)
	if full.Growth != got.Growth || got.High < full.High+15_000 || got.Low > full.Low {
		t.Errorf("%+v, all watched: %+v", got, full)
	}
}

func TestTheWindowOfJudgementBeginsWhenAllGrowthIsFromWindows(t *testing.T) {
	trace := windowedTrace(0, 100, 100, 100, 100)
	trace[4].Watch.Since, trace[4].Watch.Lag = 500*time.Millisecond, time.Second
	if got := trendOfFirst(t, trace); got.Growth != 200_000 {
		t.Errorf("growth %v, want that of the last 2 s", got.Growth)
	}
	trace[4].Watch.Lag = time.Minute
	if got := JudgeStacks(trace, lasting(0, 4), 0); got != nil {
		t.Errorf("judged before anything was mature: %+v", got)
	}
}

func TestWhatIsUndecidedIsLabelledAndNoCulprit(t *testing.T) {
	trends := []StackTrend{{Stack: first, Kind: KindHeap, Growth: 5, Trend: TrendUndecided, Doubt: DoubtHeap, Longer: time.Minute}}
	grown := []Holding{{Stack: first, Kind: KindHeap}, {Stack: second, Kind: KindHeap, Trend: TrendChurn, Doubt: DoubtHeap}}
	Label(grown, trends)
	if h := grown[0]; h.Trend != TrendUndecided || h.Doubt != DoubtHeap || h.Longer != time.Minute {
		t.Errorf("%+v", h)
	}
	if h := grown[1]; h.Trend != "" || h.Doubt != "" {
		t.Errorf("what was not judged: %+v", h)
	}
	if got := Culprits(trends, nil); len(got) != 0 {
		t.Errorf("culprits: %+v", got)
	}
}

func TestOfOneSizeClassWhatIsProvenByWhatIsInItsObjectsIsBelieved(t *testing.T) {
	proven := Sighting{Windows: 20, Printed: 40, Same: 40, Differ: 1, SizeClass: 48}
	watched := Sighting{Windows: 20, Hazard: watchedFor(1e6), Printed: 40, Same: 2, Differ: 1, SizeClass: 48}
	for name, c := range map[string]struct {
		smaller, larger         Sighting
		wantSmaller, wantLarger Doubt
	}{
		"the smaller is proven": {proven, watched, "", DoubtClass},
		"the larger is proven":  {watched, proven, DoubtClass, ""},
		"both are":              {proven, proven, "", ""},
		"neither is":            {watched, watched, DoubtClass, ""},
	} {
		trace := windowedTrace(0, 100, 100, 100, 100)
		end := trace[4]
		*end.Holdings[0].Sighting = c.smaller
		other := end.Holdings[0]
		other.Stack, other.Births, other.Sighting = second, nil, &c.larger
		for _, b := range end.Holdings[0].Births {
			other.Births = append(other.Births, Birth{b.Bin, b.InuseBytes * 1.2, b.Variance * 1.2})
		}
		end.Holdings[1].ResidentBytes += 1e6 // there is room for both
		end.Holdings = append(end.Holdings, other)
		for _, trend := range JudgeStacks(trace, lasting(0, 4), math.NaN()) {
			want, which := c.wantSmaller, "smaller"
			if trend.Stack == second {
				want, which = c.wantLarger, "larger"
			}
			if trend.Kind == KindHeap && trend.Doubt != want {
				t.Errorf("%s: of the %s the doubt is %q, want %q", name, which, trend.Doubt, want)
			}
		}
	}
}

func TestTheGrowthOfTheHeapIsGivenToTheBestEvidenceFirst(t *testing.T) {
	trace := windowedTrace(0, 100, 100, 100, 100)
	end := trace[4]
	other := end.Holdings[0]
	other.Stack, other.Births = second, nil
	other.Sighting = &Sighting{Windows: 20, Hazard: watchedFor(1e6), SizeClass: 64}
	for _, b := range end.Holdings[0].Births {
		other.Births = append(other.Births, Birth{b.Bin, b.InuseBytes * 0.8, b.Variance * 0.8})
	}
	end.Holdings = append(end.Holdings, other)
	for _, trend := range JudgeStacks(trace, lasting(0, 4), math.NaN()) {
		want := TrendAccumulating
		if trend.Stack == second {
			want = TrendUndecided // the heap grew by what the first alone holds
		}
		if trend.Kind == KindHeap && trend.Trend != want {
			t.Errorf("stack %d: %s", trend.Stack.ID, trend.Trend)
		}
	}
}

func TestTheEndsOfAWindowAreOffByAPartOfWhatAWindowStandsFor(t *testing.T) {
	short, long := windowedTrace(0, 100, 100, 100, 100), windowedTrace(0, 100, 100, 100, 100)
	long[4].Watch.Open *= 40 // 2 s for each window of the 4 s that are judged
	if a, b := trendOfFirst(t, short), trendOfFirst(t, long); b.High-b.Growth < 2*(a.High-a.Growth) {
		t.Errorf("%+v\n%+v", a, b)
	}
}

func TestWhatIsAliveAtBothEndsCancelsUnderAnyDispersion(t *testing.T) {
	trace := windowedTrace(0, 100, 100, 100, 100)
	w, _ := rangeOf(trace, lasting(1, 4))
	h := stackSeries{kind: KindHeap, start: w.start().Holdings[0], end: w.end().Holdings[0]}
	same := w.sampledChange(&h)
	h.start.Sighting = &Sighting{Dispersion: 3}
	h.start.Variance *= 3
	h.start.InuseBytes += 50_000 // freed since
	h.start.Variance += 3 * 50 * 1e6
	if got := w.sampledChange(&h); same.freed.Variance != 0 || math.Abs(got.freed.Variance/50e6-1) > 1e-9 {
		t.Errorf("variance of what was freed %v, want that of 50 samples", got.freed.Variance)
	}
}
