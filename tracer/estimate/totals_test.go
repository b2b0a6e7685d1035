package estimate

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/allocscope/allocscope/growth"
)

// Sampled totals are compared with those of all objects, over many simulated samplings.
func TestAddLive(t *testing.T) {
	const (
		interval = 4096
		objects  = 200
		rounds   = 4000
	)
	r := rand.New(rand.NewPCG(3, 4))
	sizes := []uint64{16, 1000, 5000, 20000}
	truth := 0.0
	for i := range objects {
		truth += float64(sizes[i%len(sizes)])
	}

	var sum, squares, variance float64
	for range rounds {
		var totals StackTotals
		for i := range objects {
			size := sizes[i%len(sizes)]
			weight := growth.Weight(size, interval)
			if r.Float64()*weight < 1 {
				totals.AddLive(size, Estimate{Weight: weight, Alive: 1, Burst: -1}, i%2)
			}
		}

		bytes := float64(totals.inuseBytes)
		sum += bytes
		squares += (bytes - truth) * (bytes - truth)
		variance += totals.variance

		born := 0.0
		for _, b := range totals.births {
			born += b.InuseBytes
		}
		if born != bytes {
			t.Fatalf("%v bytes by birth, want %v", born, bytes)
		}
	}

	if mean := sum / rounds; math.Abs(mean-truth) > 0.01*truth {
		t.Errorf("mean %v bytes, want %v", mean, truth)
	}
	if ratio := variance / squares; math.Abs(ratio-1) > 0.1 {
		t.Errorf("estimated variance is %v times that of the estimates", ratio)
	}
}

func TestHoldings(t *testing.T) {
	held := make(Holdings)
	stack := &growth.Stack{ID: 1, PID: 2}
	for bin := range 2 {
		var totals StackTotals
		totals.AddLive(100, Estimate{Weight: 3, Alive: 0.5, Burst: bin}, bin)
		totals.AddAllocated(&StackTotals{allocObjects: 5, allocBytes: 500})
		held.Add(stack, growth.KindHeap, "", &totals)
	}
	held.Get(stack, growth.KindPinned).InuseBytes = 7
	held.AddEvidence(&Estimator{burstSeconds: []float64{1, 1}})

	list := held.List()
	if len(list) != 2 {
		t.Fatalf("%+v", list)
	}
	for _, h := range list {
		switch h.Kind {
		case growth.KindHeap:
			if h.InuseObjects != 3 || h.InuseBytes != 300 || h.Samples != 2 ||
				h.AllocObjects != 10 || h.AllocBytes != 1000 || len(h.Births) != 2 ||
				h.Evidence == nil || h.Evidence.Bursts != 2 {
				t.Errorf("%+v", h)
			}
		case growth.KindPinned:
			if h.InuseBytes != 7 || h.Evidence != nil {
				t.Errorf("%+v", h)
			}
		}
	}
}
