package tracer_test

import (
	"math"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// TestBlockSampling samples blocks of PyTorch's caching allocator, and gives them up.
func TestBlockSampling(t *testing.T) {
	t.Parallel()
	t.Run("sampled blocks are within their confidence bound", testBlockSamplingSampledBlocksWithin)
	t.Run("storm of blocks is left to its totals", testBlockSamplingStormBlocksLeft)
	t.Run("totals go on without blocks", testBlockSamplingTotalsGoWithout)
}

// blockInterval is the mean number of bytes between sampled blocks; 0: blocks are not followed.
func blockInterval(t testing.TB, s *tracer.Session) (interval uint32) {
	t.Helper()
	must(t, tracer.Kernel(s).BlockInterval.Get(&interval))
	return interval
}

// The estimate of n blocks of s bytes, each taken with probability p, has the standard deviation s
// sqrt(n (1-p)/p). Chance exceeds six of them once in 100 million times.
func testBlockSamplingSampledBlocksWithin(t *testing.T) {
	t.Parallel()
	const interval, most = 512 << 10, 6.0
	g := startBlocks(t, realLibC10(t))
	s := traceBlocks(t, g, tracer.Options{Interval: interval})

	type leak struct {
		order, site  string
		blocks, size float64
	}

	leaks := []leak{
		{"hold weights 12000 65536 0", "0 hold_weights", 12000, 65536},
		{"hold activations 8000 131072 1", "1 hold_activations", 8000, 131072},
		{"hold weights 500 8388608 2", "2 hold_weights", 500, 8388608},
	}

	for _, l := range leaks {
		g.Do(l.order, "churn 2000 65536 0", "churn 2000 131072 1")
	}

	taken := snapshot(t, s)
	got, variance := make(map[string]float64), make(map[string]float64)
	allocated := make(map[string]float64)
	for _, h := range taken.GPUHoldings {
		if h.Kind == growth.KindCudaBlock {
			name := h.GPU + " " + siteIn(h.Stack, "hold_")
			got[name] += float64(h.InuseBytes)
			variance[name] += h.Variance
			allocated[name] += h.AllocBytes
		}
	}

	for _, l := range leaks {
		p := -math.Expm1(-l.size / interval)
		deviation := l.size * math.Sqrt(l.blocks*(1-p)/p)
		off := got[l.site] - l.blocks*l.size
		if math.Abs(off) > most*deviation+l.blocks { // each weight is rounded
			t.Errorf("%s: off by %.1f standard deviations", l.site, off/deviation)
		}
		if reported := math.Sqrt(variance[l.site]); reported < 0.8*deviation ||
			reported > 1.25*deviation+1 || math.Abs(off) > most*1.25*reported+l.blocks {
			t.Errorf("%s: a deviation of %.0f is reported, want %.0f; off by %.0f", l.site,
				reported, deviation, off)
		}

		off = allocated[l.site] - l.blocks*l.size
		if math.Abs(off) > most*deviation+0.001*l.blocks*l.size {
			t.Errorf("%s: what was allocated is off by %.1f standard deviations", l.site,
				off/deviation)
		}
	}

	for name, bytes := range got {
		if bytes != 0 && name != leaks[0].site && name != leaks[1].site && name != leaks[2].site {
			t.Errorf("%s holds %.0f bytes, want nothing", name, bytes)
		}
	}

	mustReportTotals(t, g, s, "sampled")
	mustAmount(t, "segments", amounts{"": sumOfKind(taken, growth.KindCudaSegment)},
		amounts{"": g.totals("driver_totals")["device"]})
	mustLoseNothing(t, s)
}

// Large blocks come first. Then small ones follow, which cost too much.
func testBlockSamplingStormBlocksLeft(t *testing.T) {
	t.Parallel()
	g := startBlocks(t, realLibC10(t))
	g.Do("hold weights 5 5000 0")
	s := traceBlocks(t, g, tracer.Options{Overhead: 0.01, Sources: []string{"cuda", "mapping"}})

	if interval := blockInterval(t, s); interval != controller.FirstBlockInterval {
		t.Fatalf("at first one block in %d bytes is sampled", interval)
	}

	g.Do("hold weights 60 100000000 0")
	eventually(t, "blocks are followed no more", func() bool {
		g.Do("churn 5000 512 0")
		return blockInterval(t, s) == 0
	})

	if said := sourceOf(t, s, "cuda"); !said.Attached || said.Gap != growth.GapBlocks {
		t.Errorf("%+v", said)
	}

	eventually(t, "nothing is probed", func() bool {
		before := counted(t, s, bpf.CountBlocks)
		g.Do("churn 1000 512 0")
		return counted(t, s, bpf.CountBlocks) == before
	})

	if got := sumOfKind(snapshot(t, s), growth.KindCudaBlock); got != [2]int64{} {
		t.Errorf("%d blocks are alive, whose frees are not seen", got)
	}
}

// Blocks that were given up are not followed again, nor are blocks of later targets. The totals of
// both go on.
func testBlockSamplingTotalsGoWithout(t *testing.T) {
	t.Parallel()
	one, two := startBlocks(t, realLibC10(t)), startBlocks(t, realLibC10(t))
	s := traceBlocks(t, one, exact)

	one.Do("hold weights 5 5000 0")
	must(t, tracer.Probing(s).FollowBlocks(false, 1))

	two.Do("driver " + libcuda(t))
	mustAttach(t, s, two.PID())
	for _, g := range []gpuProgram{one, two} {
		g.Do("hold weights 3 3000000 1")
		eventually(t, "the totals follow", func() bool {
			g.Do("churn 1 512 1")
			s.Sample()
			for _, d := range snapshot(t, s).GPUMemory {
				for _, of := range d.Totals {
					if d.PID == g.PID() && of.GPU == "1" && (of.Allocated == 3*3_000_320 ||
						of.Allocated == 3*3_000_320+512) {
						return !d.BlocksProbed
					}
				}
			}
			return false
		})
	}
	for _, said := range s.Sources() {
		if said.Name == "cuda" && said.Gap != growth.GapBlocks {
			t.Errorf("%+v", said)
		}
	}
	if got := sumOfKind(snapshot(t, s), growth.KindCudaBlock); got != [2]int64{} {
		t.Errorf("%d blocks are alive, whose frees are not seen", got)
	}
}
