package growth

import (
	"math"
	"testing"
	"time"
)

// mappedTrace is a trace that holds so many bytes of a mapping every second; 0: the stack is not in that snapshot.
func mappedTrace(bytes ...int64) []*Snapshot {
	snapshots := make([]*Snapshot, len(bytes))
	for i, held := range bytes {
		snapshots[i] = &Snapshot{Elapsed: time.Duration(i) * time.Second}
		if held != 0 {
			snapshots[i].Holdings = []Holding{{Stack: first, Kind: KindMmap, InuseBytes: held}}
		}
	}
	return snapshots
}

func lasting(from, to int) Window {
	return Window{time.Duration(from) * time.Second, time.Duration(to) * time.Second}
}

// onlyTrend of a trace with one stack.
func onlyTrend(t *testing.T, snapshots []*Snapshot, window Window) StackTrend {
	t.Helper()
	trends := JudgeStacks(snapshots, window, 1)
	if len(trends) != 1 {
		t.Fatalf("%d trends, want one: %+v", len(trends), trends)
	}
	return trends[0]
}

func TestTheTrendOfAMappingIsThatOfWhatItHolds(t *testing.T) {
	for name, c := range map[string]struct {
		held   []int64
		growth float64
		age    float64
		want   Trend
	}{
		"steady":                     {[]int64{0, 10, 20, 30, 40}, 40, 1, TrendAccumulating},
		"a little faster":            {[]int64{0, 10, 20, 35, 60}, 60, 0.5, TrendAccumulating},
		"filled":                     {[]int64{0, 20, 40, 42, 45}, 45, 1, TrendFilling},
		"late":                       {[]int64{5, 5, 5, 20, 100}, 95, 0, TrendChurn},
		"falls and is filled":        {[]int64{0, 60, 50, 0, 100}, 100, 1, TrendRefill},
		"gone and back":              {[]int64{10, 90, 80, 0, 130}, 120, 1, TrendRefill},
		"constant":                   {[]int64{70, 70, 70, 70, 70}, 0, 0, TrendNoGrowth},
		"given back":                 {[]int64{70, 70, 80, 10, 0}, -70, 1, TrendNoGrowth},
		"given back for a while":     {[]int64{70, 0, 0, 0, 70}, 0, 0, TrendNoGrowth},
		"grows again after a rest":   {[]int64{0, 30, 30, 30, 60}, 60, 1, TrendAccumulating},
		"a dip of less than a half":  {[]int64{0, 50, 60, 50, 100}, 100, 1, TrendAccumulating},
		"half of it is not too much": {[]int64{0, 50, 40, 0, 100}, 100, 2. / 3, TrendAccumulating},
	} {
		got := onlyTrend(t, mappedTrace(c.held...), lasting(0, 4))
		if got.Trend != c.want || got.Growth != c.growth || got.Low != c.growth || got.High != c.growth || math.Abs(got.Age-c.age) > 1e-12 {
			t.Errorf("%s: %+v, want %s with age %v", name, got, c.want, c.age)
		}
		if got.Rate != c.growth/4 {
			t.Errorf("%s: rate %v bytes/s, want %v", name, got.Rate, c.growth/4)
		}
	}
}

func TestAWindowBeginsAtTheNearestSnapshotAndEndsAtTheLastBefore(t *testing.T) {
	trace := mappedTrace(1, 10, 100, 1000, 10000)
	for _, c := range []struct {
		from, to float64
		want     float64
	}{
		{0, 4, 9999}, {0.4, 3.9, 999}, {0.6, 4, 9990}, {-50, 50, 9999}, {1.5, 4, 9990}, {2.9, 4.1, 9000},
	} {
		window := Window{time.Duration(c.from * float64(time.Second)), time.Duration(c.to * float64(time.Second))}
		if got := onlyTrend(t, trace, window); got.Growth != c.want {
			t.Errorf("from %v to %v: growth %v, want %v", c.from, c.to, got.Growth, c.want)
		}
	}
}

func TestNothingIsJudgedWithoutTwoSnapshots(t *testing.T) {
	for name, got := range map[string][]StackTrend{
		"no snapshot":     JudgeStacks(nil, lasting(0, 9), 1),
		"one snapshot":    JudgeStacks(mappedTrace(5), lasting(0, 9), 1),
		"no length":       JudgeStacks(mappedTrace(1, 2, 3), lasting(1, 1), 1),
		"before them all": JudgeStacks(mappedTrace(1, 2, 3), lasting(-9, -8), 1),
		"after them all":  JudgeStacks(mappedTrace(1, 2, 3), lasting(8, 9), 1),
		"backwards":       JudgeStacks(mappedTrace(1, 2, 3), lasting(2, 0), 1),
		"no time between": JudgeStacks([]*Snapshot{{}, {Holdings: []Holding{{Stack: first, InuseBytes: 1}}}}, lasting(0, 9), 1),
	} {
		if got != nil {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestTwoSnapshotsTellGrowthAndNoTrend(t *testing.T) {
	if got := onlyTrend(t, mappedTrace(10, 50), lasting(0, 1)); got.Growth != 40 || got.Trend != "" || got.Age != 0 || got.Score != 0 {
		t.Errorf("%+v", got)
	}
	twice := mappedTrace(10, 20, 50)
	twice[1].Elapsed = 0
	if got := onlyTrend(t, twice, lasting(0, 2)); got.Growth != 40 || got.Trend != "" {
		t.Errorf("two at the same time: %+v", got)
	}
	if got := onlyTrend(t, mappedTrace(50, 10), lasting(0, 1)); got.Trend != TrendNoGrowth {
		t.Errorf("%+v", got)
	}
}

// A leak of 10 bytes a second, seen when it suits.
func TestSnapshotsNeedNotBeEvenInTime(t *testing.T) {
	for _, moments := range [][]time.Duration{{0, 1, 2, 3, 70, 100}, {0, 20, 99, 100}} {
		var trace []*Snapshot
		for _, at := range moments {
			trace = append(trace, &Snapshot{
				Elapsed:  at * time.Second,
				Holdings: []Holding{{Stack: first, Kind: KindMmap, InuseBytes: 10*int64(at) + 5}},
			})
		}
		got := onlyTrend(t, trace, lasting(0, 100))
		if math.Abs(got.Age-1) > 1e-9 || math.Abs(got.Score-10) > 1e-9 || got.Trend != TrendAccumulating {
			t.Errorf("seen at %v: %+v, want age 1 and score 10", moments, got)
		}
	}
}

// heapTrace is a heap at an interval of 1,000 with a snapshot every second. start is what the first holds and births what was
// born in each bin of a second and is alive at the end, in samples of objects that are small. What is freed is freed last.
func heapTrace(start float64, births ...float64) []*Snapshot {
	const weight = 1000
	snapshots := make([]*Snapshot, len(births))
	var bins []time.Duration
	var atEnd []Birth
	var alive float64
	for i, n := range births {
		bins = append(bins, time.Duration(i)*time.Second)
		atEnd = append(atEnd, Birth{Bin: i, InuseBytes: n * weight, Variance: n * weight * weight})
		alive += n
		held := Holding{Stack: first, Kind: KindHeap}
		samples := start - births[0] + alive
		if i == len(births)-1 {
			samples, held.Births = alive, atEnd
		}
		held.InuseBytes, held.Variance = int64(samples*weight), samples*weight*weight
		snapshots[i] = &Snapshot{Elapsed: bins[i], Interval: weight, Bins: bins, Holdings: []Holding{held}}
	}
	return snapshots
}

func TestWhatIsAliveAtBothEndsCostsNoCertainty(t *testing.T) {
	alone := onlyTrend(t, heapTrace(0, 0, 10, 10, 10, 10), lasting(0, 4))
	beside := onlyTrend(t, heapTrace(1e6, 1e6, 10, 10, 10, 10), lasting(0, 4))
	if alone.Growth != 40_000 || alone.Trend != TrendAccumulating || alone.Low <= 0 {
		t.Errorf("40 samples: %+v", alone)
	}
	if beside != alone {
		t.Errorf("beside a gigabyte that stays: %+v, want %+v", beside, alone)
	}
	alone = onlyTrend(t, heapTrace(50, 0, 100, 100, 100, 100), lasting(0, 4))
	beside = onlyTrend(t, heapTrace(1e6+50, 1e6, 100, 100, 100, 100), lasting(0, 4))
	if beside != alone || alone.Growth != 350_000 {
		t.Errorf("with some that is freed, beside a gigabyte that stays: %+v, want %+v", beside, alone)
	}
}

func TestTurnoverCostsCertainty(t *testing.T) {
	calm := onlyTrend(t, heapTrace(0, 0, 10, 10, 10, 10), lasting(0, 4))
	busy := onlyTrend(t, heapTrace(500, 0, 135, 135, 135, 135), lasting(0, 4))
	if busy.Growth != calm.Growth || busy.Low > 0 || busy.Trend != TrendNoGrowth || busy.High < calm.High {
		t.Errorf("40 of 540 samples: %+v; 40 of 40: %+v", busy, calm)
	}
}

func TestBirthsTellYoungFromOld(t *testing.T) {
	for _, c := range []struct {
		births []float64
		age    float64
		want   Trend
	}{
		{[]float64{0, 100, 100, 100, 100}, 1, TrendAccumulating},
		{[]float64{0, 50, 50, 100, 100}, 0.5, TrendAccumulating},
		{[]float64{0, 0, 10, 100, 100}, 0.05, TrendChurn},
		{[]float64{0, 100, 100, 0, 0}, 1, TrendFilling},
		{[]float64{0, 52, 50, 50, 0}, 1, TrendAccumulating}, // 102 is not more than 2 x 50 and 4 samples
		{[]float64{0, 55, 50, 50, 0}, 1, TrendFilling},
		{[]float64{0, 1, 0, 1, 0}, 1, TrendNoGrowth},
	} {
		if got := onlyTrend(t, heapTrace(0, c.births...), lasting(0, 4)); got.Trend != c.want || math.Abs(got.Age-c.age) > 1e-12 {
			t.Errorf("%v: %+v, want %s with age %v", c.births, got, c.want, c.age)
		}
	}
}

func TestAStackThatIsGoneHasShrunk(t *testing.T) {
	trace := heapTrace(30, 0, 0, 0, 0, 0)
	trace[4].Holdings = nil
	got := onlyTrend(t, trace, lasting(0, 4))
	if got.Growth != -30_000 || got.High >= 0 || got.Low >= -30_000 || got.Trend != TrendNoGrowth {
		t.Errorf("%+v", got)
	}
}

func TestBinsBelongToTheSnapshotNearestToTheirEnd(t *testing.T) {
	trace := heapTrace(20, 20, 30, 30, 30, 30)
	for i := range trace[4].Bins {
		trace[4].Bins[i] += 30 * time.Millisecond // a snapshot takes a while
	}
	for from, want := range []float64{120_000, 90_000, 60_000, 30_000} {
		got := onlyTrend(t, trace, lasting(from, 4))
		if width := got.High - got.Low; got.Growth != want || width > 6*math.Sqrt(want*1000) {
			t.Errorf("from second %d: %+v, want a growth of %v", from, got, want)
		}
	}
}

func TestAWindowFromTheAttachCountsTheFirstBin(t *testing.T) {
	trace := heapTrace(0, 25, 25, 25, 25)
	for i, s := range trace {
		s.Elapsed = time.Duration(i) * 10 * time.Second
	}
	trace[0].Holdings = nil
	trace[3].Bins = []time.Duration{5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second}
	if got := onlyTrend(t, trace, lasting(0, 30)); got.Growth != 100_000 {
		t.Errorf("growth %v, want that of all bins, 100000", got.Growth)
	}
}

// 0.05 is the risk of one false alarm among all stacks.
func TestManyStacksNeedMoreProof(t *testing.T) {
	alone := heapTrace(0, 0, 3, 4, 4, 4)
	if got := onlyTrend(t, alone, lasting(0, 4)); got.Trend != TrendAccumulating {
		t.Errorf("alone, 15 samples: %+v", got)
	}
	for id := range uint64(2000) {
		h := Holding{Stack: &Stack{ID: 10 + id}, Kind: KindMmap, InuseBytes: 1}
		alone[0].Holdings, alone[4].Holdings = append(alone[0].Holdings, h), append(alone[4].Holdings, h)
	}
	for _, got := range JudgeStacks(alone, lasting(0, 4), 0) {
		if got.Trend != TrendNoGrowth {
			t.Errorf("among 2000: %+v", got)
		}
	}
}

func TestTheShareIsOfResidentGrowth(t *testing.T) {
	for rss, want := range map[float64]float64{20: 0.5, 10: 1, 5: 2} {
		if got := JudgeStacks(mappedTrace(0, 10, 20), lasting(0, 2), rss)[0].Share; got != want {
			t.Errorf("10 of %v bytes a second are a share of %v, want %v", rss, got, want)
		}
	}
	for _, rss := range []float64{0, -1, math.NaN()} {
		if got := JudgeStacks(mappedTrace(0, 10, 20), lasting(0, 2), rss)[0].Share; !math.IsNaN(got) {
			t.Errorf("of a resident growth of %v it is a share of %v", rss, got)
		}
	}
}
