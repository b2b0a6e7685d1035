package tracer_test

import (
	"math"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// Estimates of n blocks of s bytes, each taken with probability p, have the standard deviation s sqrt(n (1-p)/p). Six of them are
// exceeded by chance once in 100 million times.
func TestEstimatesOfSampledBlocksAreInsideTheirBoundsAndTotalsAreExact(t *testing.T) {
	t.Parallel()
	const interval, most = 512 << 10, 6.0
	g := startBlocks(t, realLibC10(t))
	s := traceBlocks(t, g, tracer.Options{Interval: interval})
	type leak struct {
		order, holder string
		blocks, size  float64
	}
	leaks := []leak{
		{"hold weights 12000 65536 0", "0 hold_weights", 12000, 65536},
		{"hold activations 8000 131072 1", "1 hold_activations", 8000, 131072},
		{"hold weights 500 8388608 2", "2 hold_weights", 500, 8388608},
	}
	for _, l := range leaks {
		g.do(l.order, "churn 2000 65536 0", "churn 2000 131072 1")
	}
	taken := snapshot(t, s)
	got, variance, allocated := make(map[string]float64), make(map[string]float64), make(map[string]float64)
	for _, h := range taken.GPUHoldings {
		if h.Kind == growth.KindCudaBlock {
			name := h.GPU + " " + holderIn(h.Stack, "hold_")
			got[name] += float64(h.InuseBytes)
			variance[name] += h.Variance
			allocated[name] += h.AllocBytes
		}
	}
	for _, l := range leaks {
		p := -math.Expm1(-l.size / interval)
		deviation := l.size * math.Sqrt(l.blocks*(1-p)/p)
		off := got[l.holder] - l.blocks*l.size
		if math.Abs(off) > most*deviation+l.blocks { // each weight is rounded
			t.Errorf("%s: off by %.1f standard deviations", l.holder, off/deviation)
		}
		if told := math.Sqrt(variance[l.holder]); told < 0.8*deviation || told > 1.25*deviation+1 || math.Abs(off) > most*1.25*told+l.blocks {
			t.Errorf("%s: a deviation of %.0f is told, want %.0f; off by %.0f", l.holder, told, deviation, off)
		}
		if off := allocated[l.holder] - l.blocks*l.size; math.Abs(off) > most*deviation+0.001*l.blocks*l.size {
			t.Errorf("%s: what was allocated is off by %.1f standard deviations", l.holder, off/deviation)
		}
	}
	for name, bytes := range got {
		if bytes != 0 && name != leaks[0].holder && name != leaks[1].holder && name != leaks[2].holder {
			t.Errorf("%s holds %.0f bytes, want nothing", name, bytes)
		}
	}
	mustTellTotals(t, g, s, "sampled")
	mustAmount(t, "segments", amounts{"": sumOfKind(taken, growth.KindCudaSegment)}, amounts{"": g.totals("driver_totals")["device"]})
	mustLoseNothing(t, s)
}
