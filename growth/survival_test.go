package growth

import (
	"math"
	"testing"
)

// hazardOf has at all ages the same rates: of deaths in windows, and of those that are found from outside.
func hazardOf(deaths, found float64) *Hazard {
	var h Hazard
	for i := range h.ages {
		h.ages[i] = Fate{Exposure: 1e6, Deaths: int(1e6 * deaths), Followed: 1e6, Found: int(1e6 * found)}
	}
	return &h
}

func TestWhatDiesUnseenDiesExponentially(t *testing.T) {
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

func BenchmarkSurvival(b *testing.B) {
	h := hazardOf(0.01, 0.004)
	for b.Loop() {
		h.Survival()
	}
}
