package trend

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth/growthtest"

	"github.com/allocscope/allocscope/growth"
)

var simulated = Window{From: growthtest.From * time.Second, To: growthtest.To * time.Second}

// busyLeak keeps 2% of the objects that ten threads allocate, and frees the rest within a minute or
// so.
func busyLeak(random *rand.Rand, rate float64) []growthtest.Object {
	var objects []growthtest.Object
	for range 10 {
		objects = append(objects, growthtest.AllocateEvenly(random, 5*rate, 0, growthtest.To,
			func(birth float64) float64 {
				if random.Float64() < 0.02 {
					return math.Inf(1)
				}
				return birth + random.ExpFloat64()*30
			})...)
	}
	return objects
}

// A judgedStack is one simulated stack: its true growth, in bytes, and how it was judged.
type judgedStack struct {
	family growthtest.Family
	truth  float64
	StackTrend
}

// simulateRun is one process with stacks of all families, in the order of suspicion.
func simulateRun(random *rand.Rand, interval float64) []judgedStack {
	const copies = 10
	var drawn []judgedStack
	var sampled [][]growthtest.Object
	for range copies {
		for _, family := range growthtest.Families {
			objects := family.Draw(random, growthtest.LogUniform(random, 8<<10, 1<<20))
			drawn = append(
				drawn, judgedStack{family: family, truth: growthtest.TrueGrowth(objects)},
			)
			sampled = append(sampled, growthtest.SampledBytewise(random, objects, interval))
		}
	}
	var judged []judgedStack
	for _, t := range JudgeStacks(growthtest.Trace(sampled, interval), simulated, 0) {
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

func TestSimulatedStacks(t *testing.T) {
	t.Run("intervals", func(t *testing.T) {
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
			t.Logf("%s: of %.0f periods, %.2f %% inside, %.2f %% below, %.2f %% above", interval,
				all, 100*(1-(below+above)/all), 100*below/all, 100*above/all)
			if all < 2000 || below/all > 0.035 || above/all > 0.035 {
				t.Errorf("%s: of %.0f periods, the truth lies below %.0f intervals and above %.0f",
					interval, all, below, above)
			}
		}
	})

	t.Run("only leaks accumulate", func(t *testing.T) {
		for interval, runs := range simulatedRuns {
			counts := make(map[string]map[growth.Trend]int)
			for _, run := range runs() {
				for _, s := range run {
					if counts[s.family.Name] == nil {
						counts[s.family.Name] = make(map[growth.Trend]int)
					}
					counts[s.family.Name][s.Trend]++
					if !s.family.Leaks && s.Trend == growth.TrendAccumulating {
						t.Errorf("%s: a stack that does %q accumulates: %+v, truly %.0f", interval,
							s.family.Name, s.StackTrend, s.truth)
					}
				}
			}
			t.Logf("%s: %v", interval, counts)
			if leaks := counts["leak"]; leaks[growth.TrendAccumulating] < 324 { // 98 %
				t.Errorf("%s: of 330 leaks, these are found: %v", interval, leaks)
			}
			if caches := counts["cache that fills"]; caches[growth.TrendSaturating] < 317 {
				t.Errorf("%s: of 330 caches that fill, these are found: %v", interval, caches)
			}
		}
	})

	// Counts of allocations and frees hide it: 98 of 100 objects are freed.
	t.Run("a leak of 2 in 100 objects", func(t *testing.T) {
		for interval, want := range map[float64]int{64 << 10: 95, 512 << 10: 90} {
			random := rand.New(rand.NewPCG(8, uint64(interval)))
			var sampled [][]growthtest.Object
			for range 100 {
				objects := busyLeak(random, growthtest.LogUniform(random, 8<<10, 1<<20))
				sampled = append(sampled, growthtest.SampledBytewise(random, objects, interval))
			}
			counts := make(map[growth.Trend]int)
			for _, trend := range JudgeStacks(growthtest.Trace(sampled, interval), simulated, 0) {
				counts[trend.Trend]++
			}
			t.Logf("%.0f KiB: %v", interval/1024, counts)
			if counts[growth.TrendAccumulating] < want {
				t.Errorf("%.0f KiB: of 100 such leaks, these are found: %v", interval/1024, counts)
			}
		}
	})
}

// BenchmarkJudgeStacks judges 2,000 stacks of 40 frames over 60 snapshots, and names the suspects.
func BenchmarkJudgeStacks(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	var sampled [][]growthtest.Object
	for i := range 2000 {
		rate := growthtest.LogUniform(random, 8<<10, 1<<20)
		objects := growthtest.Families[i%len(growthtest.Families)].Draw(random, rate)
		sampled = append(sampled, growthtest.SampledBytewise(random, objects, 512<<10))
	}
	trace := growthtest.Trace(sampled, 512<<10)[20:]
	trends := JudgeStacks(trace, simulated, 1e6)
	for _, t := range trends {
		for depth := range 40 {
			t.Stack.Frames = append(t.Stack.Frames,
				growthtest.PythonFrame("f", "/src/train.py", random.IntN(1+1000>>(depth/4))))
		}
	}

	b.Run("judging", func(b *testing.B) {
		for b.Loop() {
			JudgeStacks(trace, simulated, 1e6)
		}
	})

	b.Run("naming", func(b *testing.B) {
		for b.Loop() {
			Suspects(trends, nil)
		}
	})
}
