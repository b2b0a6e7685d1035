package growth

import (
	"math"
	"math/rand/v2"
	"testing"
)

func TestAnIntervalOfOneTakesEveryAllocationForItself(t *testing.T) {
	for _, interval := range []uint64{0, 1} {
		for _, size := range []uint64{0, 1, 4096, 1 << 40, math.MaxUint64} {
			if w := Weight(size, interval); w != 1 {
				t.Errorf("Weight(%d, %d) = %v, want 1", size, interval, w)
			}
		}
	}
}

func TestWhatCannotBeSampledHasNoWeight(t *testing.T) {
	if w := Weight(0, 512<<10); w != 0 {
		t.Errorf("Weight(0, 512 KiB) = %v, want 0", w)
	}
}

func TestAnAllocationFarLargerThanTheIntervalStandsForItself(t *testing.T) {
	for _, size := range []uint64{64 << 20, 1 << 40, math.MaxUint64} {
		if w := Weight(size, 512<<10); w != 1 {
			t.Errorf("Weight(%d, 512 KiB) = %v, want 1", size, w)
		}
	}
}

func TestAnAllocationOfTheIntervalIsTakenWithOneMinusOneOverE(t *testing.T) {
	if w := Weight(2, 2); math.Abs(w-math.E/(math.E-1)) > 1e-12 {
		t.Errorf("Weight(2, 2) = %v, want e/(e-1)", w)
	}
	if w := Weight(512<<10, 512<<10); math.Abs(w-math.E/(math.E-1)) > 1e-12 {
		t.Errorf("Weight(512 KiB, 512 KiB) = %v, want e/(e-1)", w)
	}
}

// 1/(1-exp(-x)) = 1/x + 1/2 + x/12 - ... , where 1 - exp(-x) computed as it is written keeps few digits.
func TestTheWeightOfASmallAllocationKeepsItsDigits(t *testing.T) {
	for _, interval := range []uint64{512 << 10, 2 << 20, 1 << 32, 1 << 52} {
		for _, size := range []uint64{1, 8, 96} {
			x := float64(size) / float64(interval)
			want := 1/x + 0.5 + x/12
			if w := Weight(size, interval); math.Abs(w/want-1) > 1e-12 {
				t.Errorf("Weight(%d, %d) = %v, want %v", size, interval, w, want)
			}
		}
	}
}

// The samples of a Poisson process over the bytes of all allocations, laid end to end; no formula of ours in it.
func TestWeightsMakeUpForWhatASimulatedProcessLeavesOut(t *testing.T) {
	const interval, objects = 4096, 400_000
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []uint64{1, 64, 1000, 4096, 20_000} {
		var estimate, variance float64
		next := random.ExpFloat64() * interval
		for range objects {
			taken := next < float64(size)
			for next < float64(size) { // every further point in the same object changes nothing
				next += random.ExpFloat64() * interval
			}
			next -= float64(size)
			if w := Weight(size, interval); taken {
				estimate += w
				variance += w * (w - 1)
			}
		}
		if off := math.Abs(estimate-objects) / math.Sqrt(variance); off > 4 {
			t.Errorf("%d objects of %d bytes are estimated at %.0f: off by %.1f standard deviations", objects, size, estimate, off)
		}
	}
}
