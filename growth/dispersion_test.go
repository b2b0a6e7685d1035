package growth

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The variance of repeated runs is the oracle: of windows that meet a burst or do not.
func TestTheDispersionIsThatOfRepeatedRuns(t *testing.T) {
	for _, c := range []struct {
		name         string
		meets, burst float64 // probability that a window meets a burst, and the mean count in it
	}{{"even", 1, 5}, {"in bursts", 0.2, 25}} {
		random := rand.New(rand.NewPCG(5, 5))
		const runs, n = 2000, 50
		var truth, stated float64
		for range runs {
			var sums []WindowSum
			var factors []float64
			var off, chance float64 // off what the windows stand for
			for k := range n {
				f := 10 + 20*random.Float64()
				factors = append(factors, f)
				off -= c.meets * c.burst * f
				if random.Float64() < c.meets {
					if count := float64(poisson(random, c.burst)); count > 0 {
						sums = append(sums, WindowSum{Window: k, Bytes: count * f, Variance: count * f * f})
						off, chance = off+count*f, chance+count*f*f
					}
				}
			}
			truth += off * off / runs
			if chance > 0 {
				stated += chance * Dispersion(sums, factors) / runs
			}
		}
		if ratio := stated / truth; ratio < 0.9 || ratio > 1.25 {
			t.Errorf("%s: the stated variance is %.2f of that of the runs", c.name, ratio)
		}
	}
}

func TestWhatChangesSlowlyIsNoBurst(t *testing.T) {
	var sums []WindowSum
	factors := make([]float64, 100)
	for k := range factors {
		factors[k] = 20
		sums = append(sums, WindowSum{Window: k, Bytes: float64(20 * 10 * k), Variance: float64(400 * 10 * k)})
	}
	if got := Dispersion(sums, factors); got != 1 {
		t.Errorf("of a rate that rises, %v", got)
	}
	sums[50].Error = 3e6
	if got, want := Dispersion(sums, factors), 1+9e12/(4000*4950.); math.Abs(got/want-1) > 1e-9 {
		t.Errorf("with a common error %v, want %v", got, want)
	}
}

func TestTheDispersionOfAnythingIsOneAtLeast(t *testing.T) {
	for name, got := range map[string]float64{
		"nothing":       Dispersion(nil, nil),
		"one window":    Dispersion([]WindowSum{{0, 5, 5, 0}}, []float64{20}),
		"no such":       Dispersion([]WindowSum{{-1, 5, 5, 0}, {7, 5, 5, 0}}, []float64{20, 20}),
		"no factor":     Dispersion([]WindowSum{{0, 5, 5, 0}, {1, 50, 5, 0}}, []float64{0, math.NaN()}),
		"no variance":   Dispersion([]WindowSum{{0, 5, 0, 0}}, []float64{20, 20}),
		"exact windows": Dispersion([]WindowSum{{0, 5, 5, 0}, {1, 5, 5, 0}}, []float64{20, 20}),
	} {
		if got != 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
}
