package growth

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestDispersion(t *testing.T) {
	// The variance of repeated runs is the oracle: of bursts that meet an allocation or do not.
	t.Run("of repeated runs", func(t *testing.T) {
		for _, c := range []struct {
			name         string
			meets, burst float64 // probability that a window meets a burst, and the mean count in it
		}{{"even", 1, 5}, {"in bursts", 0.2, 25}} {
			random := rand.New(rand.NewPCG(5, 5))
			const runs, n = 2000, 50
			var truth, stated float64
			for range runs {
				var sums []BurstSum
				var factors []float64
				var off, chance float64 // off the objects that the bursts represent
				for k := range n {
					f := 10 + 20*random.Float64()
					factors = append(factors, f)
					off -= c.meets * c.burst * f
					if random.Float64() < c.meets {
						if count := float64(poisson(random, c.burst)); count > 0 {
							sums = append(sums,
								BurstSum{Burst: k, Bytes: count * f, Variance: count * f * f})
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
	})

	t.Run("slow changes", func(t *testing.T) {
		var sums []BurstSum
		factors := make([]float64, 100)
		for k := range factors {
			factors[k] = 20
			sums = append(sums,
				BurstSum{Burst: k, Bytes: float64(20 * 10 * k), Variance: float64(400 * 10 * k)})
		}
		if got := Dispersion(sums, factors); got != 1 {
			t.Errorf("of a rate that rises, %v", got)
		}
		sums[50].Error = 3e6
		want := 1 + 9e12/(4000*4950.)
		if got := Dispersion(sums, factors); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("with a common error %v, want %v", got, want)
		}
	})

	t.Run("at least one", func(t *testing.T) {
		for name, got := range map[string]float64{
			"nothing":      Dispersion(nil, nil),
			"one window":   Dispersion([]BurstSum{{0, 5, 5, 0}}, []float64{20}),
			"no such":      Dispersion([]BurstSum{{-1, 5, 5, 0}, {7, 5, 5, 0}}, []float64{20, 20}),
			"no factor":    Dispersion([]BurstSum{{0, 5, 5, 0}, {1, 50, 5, 0}}, []float64{0, math.NaN()}),
			"no variance":  Dispersion([]BurstSum{{0, 5, 0, 0}}, []float64{20, 20}),
			"exact bursts": Dispersion([]BurstSum{{0, 5, 5, 0}, {1, 5, 5, 0}}, []float64{20, 20}),
		} {
			if got != 1 {
				t.Errorf("%s: %v", name, got)
			}
		}
	})
}

// hazardOf has at all ages the same rates: of deaths in bursts, and of those found from outside.
func hazardOf(deaths, found float64) *HazardRate {
	var h HazardRate
	for i := range h.ages {
		h.ages[i] = DeathCounts{
			ExposureSeconds: 1e6, Deaths: int(1e6 * deaths), TrackedSeconds: 1e6,
			FoundDead: int(1e6 * found),
		}
	}
	return &h
}

func TestSurvival(t *testing.T) {
	for _, c := range []struct{ deaths, found float64 }{{0.1, 0}, {0.01, 0}, {0.01, 0.004}, {0.001, 0.0009}, {0.05, 0.02}} {
		s := hazardOf(c.deaths, c.found).Survival()
		for _, age := range []float64{0, 1, 5, 12, 60, 100, 300} {
			got, _ := s.At(seconds(age))
			if want := math.Exp(-(c.deaths - c.found) * age); math.Abs(got-want) > 0.02 {
				t.Errorf("%+v: of age %v s %.4f are alive, want %.4f", c, age, got, want)
			}
		}
	}
}

func seconds(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }

func poisson(random *rand.Rand, mean float64) (n int) {
	for left := random.ExpFloat64(); left < mean; left += random.ExpFloat64() {
		n++
	}
	return n
}

func TestRescaledInuse(t *testing.T) {
	// Half of the bytes are from bursts of 1 s after pauses of 9 s.
	h := Holding{InuseBytes: 2000, Evidence: &BurstEvidence{Bytes: 1000}}
	start := HeapCoverage{Slowdown: 11, Extrapolation: 1 + 11*9}
	for slowdown, want := range map[float64]int64{11: 2000, 1: 1100, 0: 2000} {
		end := HeapCoverage{Slowdown: slowdown}
		if got := h.RescaledInuse(&start, &end); got != want {
			t.Errorf("by a slowdown of %v: %d bytes, want %d", slowdown, got, want)
		}
	}

	h.Evidence = nil
	if got := h.RescaledInuse(&start, &HeapCoverage{Slowdown: 1}); got != 2000 {
		t.Errorf("without bursts: %d bytes", got)
	}
}
