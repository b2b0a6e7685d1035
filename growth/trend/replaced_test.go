package trend

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// sizeTrace is a trace that has one object of so many bytes each second, or several; all objects at
// the end were born in its last second.
func sizeTrace(objects func(second int) (count, size float64), seconds int) []*growth.Snapshot {
	var trace []*growth.Snapshot
	var bins []time.Duration
	for s := range seconds {
		at := time.Duration(s) * time.Second
		bins = append(bins, at)
		count, size := objects(s)
		h := growth.Holding{Stack: first, Kind: growth.KindHeap, InuseObjects: count}
		h.InuseBytes = int64(count * size)
		trace = append(trace, &growth.Snapshot{Elapsed: at, Interval: 512 << 10})
		if count > 0 {
			trace[s].Holdings = []growth.Holding{h}
		}
	}

	end := trace[seconds-1]
	end.Bins = bins

	h := &end.Holdings[0]
	h.Births = []growth.Birth{{Bin: seconds - 1, InuseBytes: float64(h.InuseBytes)}}
	return trace
}

func TestReplaced(t *testing.T) {
	const mib = 1 << 20
	steady := func(s int) (float64, float64) { return 1, float64(10+s) * mib }
	for name, c := range map[string]struct {
		objects  func(second int) (count, size float64)
		want     growth.Trend
		growth   float64 // MiB
		isSteady bool
		howMany  float64
	}{
		"one that is extended": {steady, growth.TrendReplaced, 19, true, 1},
		"caught while it is copied": {func(s int) (float64, float64) {
			return 1 + float64(s%2), float64(10+s) * mib
		}, growth.TrendReplaced, 19, true, 1},
		"caught between two": {func(s int) (float64, float64) {
			count, size := steady(s)
			return count * float64(min(1, s%5)), size
		}, growth.TrendReplaced, 18, true, 1},
		"three": {
			func(s int) (float64, float64) { return 3, float64(10+s) * mib },
			growth.TrendReplaced, 57, true, 3,
		},
		"a table that doubles late": {func(s int) (float64, float64) {
			return 1, float64(20+20*(s/17)) * mib
		}, growth.TrendReplaced, 20, false, 1},
		"one of constant size": {
			func(int) (float64, float64) { return 1, 10 * mib },
			growth.TrendNoGrowth, 0, false, 0,
		},
		"more and more, all young": {
			func(s int) (float64, float64) { return float64(1 + s), mib },
			growth.TrendTransient, 19, false, 0,
		},
		"larger, then smaller": {func(s int) (float64, float64) {
			return 1, float64(10+20*(s%15)) * mib
		}, growth.TrendTransient, 80, false, 0},
	} {
		got := onlyTrend(t, sizeTrace(c.objects, 20), lasting(0, 19))
		if got.Trend != c.want || got.Objects != c.howMany || got.isSteady != c.isSteady ||
			c.want == growth.TrendReplaced && got.Growth != c.growth*mib {
			t.Errorf("%s: %+v, want %s", name, got, c.want)
		}
		if got.Grows() != (c.want == growth.TrendReplaced) || got.Accumulates() != c.isSteady {
			t.Errorf("%s: grows %v, accumulates %v", name, got.Grows(), got.Accumulates())
		}
	}

	old := sizeTrace(steady, 20)
	old[19].Holdings[0].Births[0].Bin = 0
	if got := onlyTrend(t, old, lasting(0, 19)); got.Trend == growth.TrendReplaced {
		t.Errorf("from before the window: %+v", got)
	}
}

// A buffer of each batch, whose size varies, is not replaced by larger ones.
func TestReplacedByChance(t *testing.T) {
	for seed := range uint64(500) {
		random := rand.New(rand.NewPCG(seed, 1))
		trace := sizeTrace(func(int) (float64, float64) {
			return 1, 1e6 + 50e6*random.Float64()
		}, 10)
		if got := onlyTrend(t, trace, lasting(0, 9)); got.Trend == growth.TrendReplaced {
			t.Errorf("seed %d: %+v", seed, got)
		}
	}
}
