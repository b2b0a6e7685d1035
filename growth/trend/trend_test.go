package trend

import (
	"encoding/binary"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

var first, second = &growth.Stack{ID: 1}, &growth.Stack{ID: 2}

// mappedTrace is a trace that holds so many bytes of a mapping every second; 0: the stack is not in
// that snapshot.
func mappedTrace(bytes ...int64) []*growth.Snapshot {
	snapshots := make([]*growth.Snapshot, len(bytes))
	for i, held := range bytes {
		snapshots[i] = &growth.Snapshot{Elapsed: time.Duration(i) * time.Second}
		if held != 0 {
			snapshots[i].Holdings = []growth.Holding{
				{Stack: first, Kind: growth.KindMmap, InuseBytes: held},
			}
		}
	}
	return snapshots
}

func lasting(from, to int) Window {
	return Window{time.Duration(from) * time.Second, time.Duration(to) * time.Second}
}

func onlyTrend(t *testing.T, snapshots []*growth.Snapshot, window Window) StackTrend {
	t.Helper()
	trends := JudgeStacks(snapshots, window, 1)
	if len(trends) != 1 {
		t.Fatalf("%d trends, want one: %+v", len(trends), trends)
	}
	return trends[0]
}

func TestJudgeStacks(t *testing.T) {
	t.Run("of exact memory", func(t *testing.T) {
		for name, c := range map[string]struct {
			held   []int64
			growth float64
			age    float64
			want   growth.Trend
		}{
			"steady":                    {[]int64{0, 10, 20, 30, 40}, 40, 1, growth.TrendAccumulating},
			"a little faster":           {[]int64{0, 10, 20, 35, 60}, 60, 0.5, growth.TrendAccumulating},
			"filled":                    {[]int64{0, 20, 40, 42, 45}, 45, 1, growth.TrendSaturating},
			"late":                      {[]int64{5, 5, 5, 20, 100}, 95, 0, growth.TrendTransient},
			"falls and is filled":       {[]int64{0, 60, 50, 0, 100}, 100, 1, growth.TrendRefilled},
			"given back":                {[]int64{70, 70, 80, 10, 0}, -70, 1, growth.TrendNoGrowth},
			"grows again after a rest":  {[]int64{0, 30, 30, 30, 60}, 60, 1, growth.TrendAccumulating},
			"a dip of less than a half": {[]int64{0, 50, 60, 50, 100}, 100, 1, growth.TrendAccumulating},
		} {
			got := onlyTrend(t, mappedTrace(c.held...), lasting(0, 4))
			if got.Trend != c.want || got.Growth != c.growth || got.Low != c.growth ||
				got.High != c.growth || got.Rate != c.growth/4 || math.Abs(got.Age-c.age) > 1e-12 {
				t.Errorf("%s: %+v, want %s by %v with age %v", name, got, c.want, c.growth, c.age)
			}
		}
	})

	t.Run("the window begins at the nearest snapshot, ends at the last before", func(t *testing.T) {
		trace := mappedTrace(1, 10, 100, 1000, 10000)
		for _, c := range []struct{ from, to, want float64 }{
			{0, 4, 9999}, {0.4, 3.9, 999}, {0.6, 4, 9990}, {-50, 50, 9999}, {2.9, 4.1, 9000},
		} {
			if got := onlyTrend(t, trace, Window{seconds(c.from), seconds(c.to)}); got.Growth != c.want {
				t.Errorf("from %v to %v: growth %v, want %v", c.from, c.to, got.Growth, c.want)
			}
		}
	})

	t.Run("nothing without two snapshots", func(t *testing.T) {
		timeless := mappedTrace(1, 2)
		timeless[1].Elapsed = 0
		for name, got := range map[string][]StackTrend{
			"no snapshot":     JudgeStacks(nil, lasting(0, 9), 1),
			"one snapshot":    JudgeStacks(mappedTrace(5), lasting(0, 9), 1),
			"no length":       JudgeStacks(mappedTrace(1, 2, 3), lasting(1, 1), 1),
			"before them all": JudgeStacks(mappedTrace(1, 2, 3), lasting(-9, -8), 1),
			"after them all":  JudgeStacks(mappedTrace(1, 2, 3), lasting(8, 9), 1),
			"backwards":       JudgeStacks(mappedTrace(1, 2, 3), lasting(2, 0), 1),
			"no time between": JudgeStacks(timeless, lasting(0, 9), 1),
		} {
			if got != nil {
				t.Errorf("%s: %+v", name, got)
			}
		}
	})

	t.Run("two snapshots have growth and no trend", func(t *testing.T) {
		twice := mappedTrace(10, 20, 50)
		twice[1].Elapsed = 0
		for _, trace := range [][]*growth.Snapshot{mappedTrace(10, 50), twice} {
			got := onlyTrend(t, trace, lasting(0, 2))
			if got.Growth != 40 || got.Trend != "" || got.Age != 0 || got.Score != 0 {
				t.Errorf("%+v", got)
			}
		}
		got := onlyTrend(t, mappedTrace(50, 10), lasting(0, 1))
		if got.Trend != growth.TrendNoGrowth {
			t.Errorf("%+v", got)
		}
	})

	t.Run("memory alive at both ends carries no error", func(t *testing.T) {
		alone := onlyTrend(t, heapTrace(0, 0, 10, 10, 10, 10), lasting(0, 4))
		beside := onlyTrend(t, heapTrace(1e6, 1e6, 10, 10, 10, 10), lasting(0, 4))
		if alone.Growth != 40_000 || alone.Trend != growth.TrendAccumulating || alone.Low <= 0 {
			t.Errorf("40 samples: %+v", alone)
		}
		if beside != alone {
			t.Errorf("beside a gigabyte that stays: %+v, want %+v", beside, alone)
		}
		alone = onlyTrend(t, heapTrace(50, 0, 100, 100, 100, 100), lasting(0, 4))
		beside = onlyTrend(t, heapTrace(1e6+50, 1e6, 100, 100, 100, 100), lasting(0, 4))
		if beside != alone || alone.Growth != 350_000 {
			t.Errorf("some is freed: %+v, want %+v", beside, alone)
		}
	})

	t.Run("births tell transient memory", func(t *testing.T) {
		for _, c := range []struct {
			births []float64
			age    float64
			want   growth.Trend
		}{
			{[]float64{0, 100, 100, 100, 100}, 1, growth.TrendAccumulating},
			{[]float64{0, 50, 50, 100, 100}, 0.5, growth.TrendAccumulating},
			{[]float64{0, 0, 10, 100, 100}, 0.05, growth.TrendTransient},
			{[]float64{0, 100, 100, 0, 0}, 1, growth.TrendSaturating},
			{[]float64{0, 1, 0, 1, 0}, 1, growth.TrendNoGrowth},
		} {
			got := onlyTrend(t, heapTrace(0, c.births...), lasting(0, 4))
			if got.Trend != c.want || math.Abs(got.Age-c.age) > 1e-12 {
				t.Errorf("%v: %+v, want %s with age %v", c.births, got, c.want, c.age)
			}
		}
	})

	t.Run("a stack that is gone has shrunk", func(t *testing.T) {
		trace := heapTrace(30, 0, 0, 0, 0, 0)
		trace[4].Holdings = nil
		got := onlyTrend(t, trace, lasting(0, 4))
		if got.Growth != -30_000 || got.High >= 0 || got.Low >= -30_000 ||
			got.Trend != growth.TrendNoGrowth {
			t.Errorf("%+v", got)
		}
	})

	t.Run("bins belong to the snapshot nearest to their end", func(t *testing.T) {
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
	})

	t.Run("a window from the start of tracing has the first bin", func(t *testing.T) {
		trace := heapTrace(0, 25, 25, 25, 25)
		for i, s := range trace {
			s.Elapsed = time.Duration(i) * 10 * time.Second
		}
		trace[0].Holdings = nil
		trace[3].Bins = []time.Duration{
			5 * time.Second, 10 * time.Second, 20 * time.Second, 30 * time.Second,
		}
		if got := onlyTrend(t, trace, lasting(0, 30)); got.Growth != 100_000 {
			t.Errorf("growth %v, want that of all bins, 100000", got.Growth)
		}
	})

	// 0.05 is the risk of one false alarm among all stacks.
	t.Run("many stacks need more proof", func(t *testing.T) {
		alone := heapTrace(0, 0, 3, 4, 4, 4)
		if got := onlyTrend(t, alone, lasting(0, 4)); got.Trend != growth.TrendAccumulating {
			t.Errorf("alone, 15 samples: %+v", got)
		}
		for id := range uint64(2000) {
			h := growth.Holding{
				Stack: &growth.Stack{ID: 10 + id}, Kind: growth.KindMmap, InuseBytes: 1,
			}
			alone[0].Holdings = append(alone[0].Holdings, h)
			alone[4].Holdings = append(alone[4].Holdings, h)
		}
		for _, got := range JudgeStacks(alone, lasting(0, 4), 0) {
			if got.Trend != growth.TrendNoGrowth {
				t.Errorf("among 2000: %+v", got)
			}
		}
	})

	t.Run("shares are of the RSS growth", func(t *testing.T) {
		nan := math.NaN()
		for _, c := range []struct{ rss, want float64 }{
			{20, 0.5}, {10, 1}, {5, 2}, {0, nan}, {-1, nan}, {nan, nan},
		} {
			got := JudgeStacks(mappedTrace(0, 10, 20), lasting(0, 2), c.rss)[0].Share
			if got != c.want && !(math.IsNaN(got) && math.IsNaN(c.want)) {
				t.Errorf("10 of %v bytes a second are a share of %v, want %v", c.rss, got, c.want)
			}
		}
	})

	t.Run("order", func(t *testing.T) {
		trace := []*growth.Snapshot{{}, {Elapsed: time.Second}, {Elapsed: 2 * time.Second}}
		add := func(id uint64, pid int, kind growth.Kind, bytes ...int64) {
			for i, b := range bytes {
				trace[i].Holdings = append(trace[i].Holdings, growth.Holding{
					Stack: &growth.Stack{ID: id, PID: pid}, Kind: kind, InuseBytes: b,
				})
			}
		}
		add(5, 1, growth.KindMmap, 0, 0, 900)  // all late: no score
		add(0, 2, growth.KindMmap, 0, 5, 10)   // the unknown stack of two processes
		add(0, 1, growth.KindShmem, 0, 5, 10)  // and kinds
		add(0, 1, growth.KindMmap, 0, 5, 10)   //
		add(7, 1, growth.KindMmap, 0, 50, 100) // a leak
		add(8, 1, growth.KindMmap, 0, 100, 120)
		add(3, 1, growth.KindMmap, 10, 5, 0)
		add(4, 1, growth.KindMmap, 5, 5, 5)
		var got [][2]int
		for _, trend := range JudgeStacks(trace, lasting(0, 2), 0) {
			got = append(got, [2]int{int(trend.Stack.ID), trend.Stack.PID})
		}
		want := [][2]int{{7, 1}, {8, 1}, {0, 1}, {0, 1}, {0, 2}, {5, 1}, {4, 1}, {3, 1}}
		if !slices.Equal(got, want) {
			t.Errorf("stacks and processes %v, want %v", got, want)
		}
	})
}

// A leak of 10 bytes a second, seen when it suits.
func TestSnapshotsNeedNotBeEvenInTime(t *testing.T) {
	for _, moments := range [][]time.Duration{{0, 1, 2, 3, 70, 100}, {0, 20, 99, 100}} {
		var trace []*growth.Snapshot
		for _, at := range moments {
			trace = append(trace, &growth.Snapshot{
				Elapsed: at * time.Second,
				Holdings: []growth.Holding{
					{Stack: first, Kind: growth.KindMmap, InuseBytes: 10*int64(at) + 5},
				},
			})
		}
		got := onlyTrend(t, trace, lasting(0, 100))
		if math.Abs(got.Age-1) > 1e-9 || math.Abs(got.Score-10) > 1e-9 ||
			got.Trend != growth.TrendAccumulating {
			t.Errorf("seen at %v: %+v, want age 1 and score 10", moments, got)
		}
	}
}

// heapTrace is a heap at an interval of 1,000 with a snapshot every second. start has the objects
// of the first snapshot, and births the objects born in each bin of a second and alive at the end,
// in samples of objects that are small. Objects that are freed are freed last.
func heapTrace(start float64, births ...float64) []*growth.Snapshot {
	const weight = 1000
	snapshots := make([]*growth.Snapshot, len(births))
	var bins []time.Duration
	var atEnd []growth.Birth
	var alive float64
	for i, n := range births {
		bins = append(bins, time.Duration(i)*time.Second)
		atEnd = append(atEnd,
			growth.Birth{Bin: i, InuseBytes: n * weight, Variance: n * weight * weight})
		alive += n
		held := growth.Holding{Stack: first, Kind: growth.KindHeap}
		samples := start - births[0] + alive
		if i == len(births)-1 {
			samples, held.Births = alive, atEnd
		}
		held.InuseBytes, held.Variance = int64(samples*weight), samples*weight*weight
		snapshots[i] = &growth.Snapshot{
			Elapsed: bins[i], Interval: weight, Bins: bins, Holdings: []growth.Holding{held},
		}
	}

	return snapshots
}

// A site of a producer may be sampled more coarsely than the snapshot's interval says.
func TestIntervalOfSamples(t *testing.T) {
	const seconds = 8
	births := []float64{3, 2, 2, 2, 2, 2, 2, 2}
	window := lasting(0, seconds-1)
	want := onlyTrend(t, heapTrace(3, births...), window)
	finer := heapTrace(3, births...)
	for _, s := range finer {
		s.Interval = 10
	}
	if got := onlyTrend(t, finer, window); got.Low != want.Low || got.High != want.High ||
		got.Trend != want.Trend {
		t.Errorf("%+v, want as of one interval: %+v", got, want)
	}
}

func TestLabel(t *testing.T) {
	other := &growth.Stack{ID: first.ID, PID: 77}
	grown := []growth.Holding{
		{Stack: &growth.Stack{ID: first.ID}, Kind: growth.KindMmap},
		{Stack: first, Kind: growth.KindHeap},
		{Stack: other, Kind: growth.KindMmap},
		{Stack: second, Trend: growth.TrendTransient, Undecided: growth.UndecidedHeapGrowth},
	}
	Label(grown, []StackTrend{
		{Stack: first, Kind: growth.KindMmap, Trend: growth.TrendAccumulating},
		{
			Stack: first, Kind: growth.KindHeap, Trend: growth.TrendUndecided,
			Undecided: growth.UndecidedHeapGrowth, Longer: time.Minute,
		},
		{Stack: other, Kind: growth.KindMmap, Trend: growth.TrendRefilled},
	})

	want := slices.Clone(grown)
	want[0].Trend, want[2].Trend, want[3].Trend = growth.TrendAccumulating, growth.TrendRefilled, ""
	want[1].Trend, want[1].Longer = growth.TrendUndecided, time.Minute
	want[1].Undecided, want[3].Undecided = growth.UndecidedHeapGrowth, ""
	if !reflect.DeepEqual(grown, want) {
		t.Errorf("%+v, want %+v", grown, want)
	}
}

func FuzzJudgeStacks(f *testing.F) {
	f.Add([]byte{}, int64(0), int64(4e9), uint64(512<<10))
	f.Add([]byte("\x01heap-and-mappings-of-hostile-sizes-and-bins-0123456789"), int64(1e9),
		int64(3e9), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, from, to int64, interval uint64) {
		trace := []*growth.Snapshot{
			{},
			{Elapsed: 1e9},
			{Elapsed: 2e9},
			{Elapsed: 4e9, Interval: interval, Bins: []time.Duration{1e9, 2e9, 4e9}},
		}
		for ; len(data) >= 12; data = data[12:] {
			h := growth.Holding{
				Stack: &growth.Stack{ID: uint64(data[0] % 8)},
				Kind:  []growth.Kind{growth.KindHeap, growth.KindMmap}[data[1]%2],
			}
			h.InuseBytes = int64(int32(binary.LittleEndian.Uint32(data[2:])))
			h.Variance = float64(binary.LittleEndian.Uint32(data[6:])) * float64(interval)
			if at := data[10] % 4; at == 3 && h.Kind == growth.KindHeap {
				bin := int(int8(data[11]))
				h.AddBirth(growth.Birth{
					Bin: bin, InuseBytes: float64(h.InuseBytes), Variance: h.Variance,
				})
			}
			trace[data[10]%4].Holdings = append(trace[data[10]%4].Holdings, h)
		}
		for _, got := range JudgeStacks(trace, Window{time.Duration(from), time.Duration(to)}, 1) {
			holds := got.Low <= got.Growth && got.Growth <= got.High
			if !holds || !(got.Age >= 0 && got.Age <= 1 && got.Score >= 0) ||
				math.IsInf(got.High-got.Low, 0) {
				t.Errorf("%+v", got)
			}
		}
	})
}

// The first half of 100 sampled blocks of 1 MiB stay, and 100 are born in the second.
func TestJudgeStacksOnGPUs(t *testing.T) {
	const each = 100 << 20
	keep := growth.NamedStack(7, "", "keep")
	bins := []time.Duration{0, time.Minute, 2 * time.Minute}
	at := func(i int, births ...growth.Birth) *growth.Snapshot {
		return &growth.Snapshot{
			Elapsed: bins[i], Interval: 1 << 20, Bins: bins,
			GPUHoldings: []growth.Holding{{
				Stack: keep, Kind: growth.KindCudaBlock, GPU: "0", InuseBytes: each * int64(i),
				Births: births,
			}},
		}
	}
	early := growth.Birth{Bin: 1, InuseBytes: each, Variance: 1}
	late := growth.Birth{Bin: 2, InuseBytes: each, Variance: 1}
	snapshots := []*growth.Snapshot{at(0), at(1), at(2, early, late)}
	for i, one := range snapshots {
		snapshots[i] = one.OnGPUs(growth.KindCudaBlock)
	}
	trends := JudgeStacks(snapshots, Window{To: 2 * time.Minute}, 2*each/120)
	if len(trends) != 1 || trends[0].Trend != growth.TrendAccumulating ||
		trends[0].Growth != 2*each || trends[0].GPU != "0" {
		t.Errorf("%+v", trends)
	}

	late.InuseBytes *= 2
	snapshots[2] = at(2, late).OnGPUs(growth.KindCudaBlock)
	trends = JudgeStacks(snapshots, Window{To: 2 * time.Minute}, 0)
	if trends[0].Trend != growth.TrendTransient {
		t.Errorf("all that is alive is young: %s", trends[0].Trend)
	}

	last := at(2, growth.Birth{Bin: 2, InuseBytes: each})
	if last.DropBirths(&growth.Snapshot{Alive: []int{7}}); len(last.GPUHoldings[0].Births) != 0 {
		t.Error("births are kept of what a later snapshot knows better")
	}

	last = at(2, growth.Birth{Bin: 2, InuseBytes: each})
	last.DropBirths(&growth.Snapshot{
		Alive: []int{7}, GPUMemory: []growth.ProcessGPUMemory{{PID: 7}},
	})
	if len(last.GPUHoldings[0].Births) == 0 {
		t.Error("births of blocks are dropped where a later snapshot does not know them")
	}
}
