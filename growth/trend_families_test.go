package growth

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// A judgedStack is one simulated stack: what it truly grew, in bytes, and how it was judged.
type judgedStack struct {
	family simulatedFamily
	truth  float64
	StackTrend
}

// simulateRun is one process with stacks of all families, in the order of suspicion.
func simulateRun(random *rand.Rand, interval float64) []judgedStack {
	const copies = 10
	var drawn []judgedStack
	var sampled [][]simulatedObject
	for range copies {
		for _, family := range simulatedFamilies {
			objects := family.draw(random, logUniform(random, 8<<10, 1<<20))
			drawn = append(drawn, judgedStack{family: family, truth: trueGrowth(objects)})
			sampled = append(sampled, sampledBytewise(random, objects, interval))
		}
	}
	var judged []judgedStack
	for _, t := range JudgeStacks(simulatedTrace(sampled, interval), simulatedWindow, 0) {
		d := drawn[t.Stack.ID-1]
		judged = append(judged, judgedStack{d.family, d.truth, t})
	}
	return judged
}

func simulateRuns(interval float64) func() [][]judgedStack {
	return sync.OnceValue(func() [][]judgedStack {
		random := rand.New(rand.NewPCG(7, uint64(interval)))
		runs := make([][]judgedStack, 33)
		for i := range runs {
			runs[i] = simulateRun(random, interval)
		}
		return runs
	})
}

var simulatedRuns = map[string]func() [][]judgedStack{
	"64 KiB": simulateRuns(64 << 10), "512 KiB": simulateRuns(512 << 10),
}

func TestTheIntervalHoldsTheTrueGrowthOfAStack(t *testing.T) {
	for interval, runs := range simulatedRuns {
		var all, below, above float64
		for _, run := range runs() {
			for _, s := range run {
				all++
				if s.truth < s.Low-1 { // bytes: holdings are rounded
					below++
				}
				if s.truth > s.High+1 {
					above++
				}
			}
		}
		t.Logf("%s: of %.0f windows, %.2f %% inside, %.2f %% below, %.2f %% above", interval, all, 100*(1-(below+above)/all), 100*below/all, 100*above/all)
		if all < 2000 || below/all > 0.035 || above/all > 0.035 {
			t.Errorf("%s: of %.0f windows, the truth lies below %.0f intervals and above %.0f", interval, all, below, above)
		}
	}
}

func TestOnlyLeaksAccumulate(t *testing.T) {
	for interval, runs := range simulatedRuns {
		counts := make(map[string]map[Trend]int)
		for _, run := range runs() {
			for _, s := range run {
				if counts[s.family.name] == nil {
					counts[s.family.name] = make(map[Trend]int)
				}
				counts[s.family.name][s.Trend]++
				if !s.family.leaks && s.Trend == TrendAccumulating {
					t.Errorf("%s: a stack that does %q accumulates: %+v, truly %.0f", interval, s.family.name, s.StackTrend, s.truth)
				}
			}
		}
		t.Logf("%s: %v", interval, counts)
		if leaks := counts["leak"]; leaks[TrendAccumulating] < 324 { // 98 %
			t.Errorf("%s: of 330 leaks, these are found: %v", interval, leaks)
		}
		if caches := counts["cache that fills"]; caches[TrendFilling] < 317 {
			t.Errorf("%s: of 330 caches that fill, these are found: %v", interval, caches)
		}
	}
}

// Leaks of nearly the same size may change places.
func TestTheLargestLeaksAreTheMostSuspect(t *testing.T) {
	for interval, runs := range simulatedRuns {
		for i, run := range runs() {
			var largest, rest float64
			for _, s := range run {
				if s.family.leaks {
					largest = max(largest, s.truth)
				} else {
					rest = max(rest, s.Score)
				}
			}
			if top := run[0]; !top.family.leaks || top.truth < 0.8*largest || top.Score <= rest {
				t.Errorf("%s, run %d: the most suspect is %q, truly %.0f; the largest leak is %.0f, the highest other score %.0f", interval, i, top.family.name, top.truth, largest, rest)
			}
		}
	}
}

// Counts of allocations and frees hide it: 98 of 100 objects are freed.
func TestALeakOfTwoInAHundredIsFoundInABusyStack(t *testing.T) {
	for interval, want := range map[float64]int{64 << 10: 95, 512 << 10: 90} {
		random := rand.New(rand.NewPCG(8, uint64(interval)))
		var sampled [][]simulatedObject
		for range 100 {
			objects := busyLeak(random, logUniform(random, 8<<10, 1<<20))
			sampled = append(sampled, sampledBytewise(random, objects, interval))
		}
		counts := make(map[Trend]int)
		for _, trend := range JudgeStacks(simulatedTrace(sampled, interval), simulatedWindow, 0) {
			counts[trend.Trend]++
		}
		t.Logf("%.0f KiB: %v", interval/1024, counts)
		if counts[TrendAccumulating] < want {
			t.Errorf("%.0f KiB: of 100 such leaks, these are found: %v", interval/1024, counts)
		}
	}
}
