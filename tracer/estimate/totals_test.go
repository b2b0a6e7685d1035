package estimate

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/liveness"
)

// Sampled totals are compared with the totals of all objects, over many simulated samplings.
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

		bytes := float64(totals.InuseBytes)
		sum += bytes
		squares += (bytes - truth) * (bytes - truth)
		variance += totals.Variance

		born := 0.0
		for _, b := range totals.Births {
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

// A producer says what its samples represent, whatever the probes of others do meanwhile.
func TestWeighted(t *testing.T) {
	const size, interval = 1000, 4096
	weight := uint64(math.Round(size * growth.Weight(size, interval)))
	inBurst := &Schedule{Periods: []ProbePeriod{{From: 1, To: 2}, {From: 100, To: 200, Burst: true}}}
	e := NewEstimator(inBurst, &liveness.Tracker{}, false, 300, nil, BirthBins{300})
	exact := bpf.Allocation{Size: size, Weight: size, Born: 150}
	sampled := bpf.Allocation{Size: size, Weight: weight, Born: 160}

	var totals StackTotals
	for _, a := range []*bpf.Allocation{&sampled, &exact} {
		totals.AddLive(a.Size, e.estimate(&bpf.Address{}, a), 0)
	}
	w := float64(weight)
	if totals.InuseBytes != int64(weight)+size || totals.evidence != nil ||
		math.Abs(totals.InuseObjects-1-w/size) > 1e-9 || math.Abs(totals.Variance-w*(w-size)) > 1 {
		t.Errorf("%+v", totals)
	}
	const factor = 7 // of a burst
	tally := bpf.Tally{Objects: 4, Bytes: 4 * size, Weight: 4 * weight}
	totals.AddTally(&bpf.TallyKey{}, &tally, factor)
	totals.AddTally(&bpf.TallyKey{}, &bpf.Tally{Objects: 3, Weight: 3}, factor) // of malloc(0)
	if math.Abs(totals.AllocObjects-4*w/size-3) > 1e-9 || totals.AllocBytes != 4*w {
		t.Errorf("%v objects, %v bytes were allocated", totals.AllocObjects, totals.AllocBytes)
	}
}

func TestHoldings(t *testing.T) {
	held := make(Holdings)
	stack := &growth.Stack{ID: 1, PID: 2}
	for bin := range 2 {
		var totals StackTotals
		totals.AddLive(100, Estimate{Weight: 3, Alive: 0.5, Burst: bin}, bin)
		totals.AddTally(&bpf.TallyKey{}, &bpf.Tally{Objects: 5, Bytes: 500, Weight: 500}, 1)
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
