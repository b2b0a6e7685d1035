package verdict

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// Two traces of one process, of five and eleven minutes, and nothing between them.
const (
	firstTrace  = 5 * 60.0
	secondTrace = 11 * 60.0
	gapLevel    = 4e9 // bytes
)

// gaps between the two, in seconds.
var gaps = []float64{10, 300, 900, 3600, 36000}

// withGap samples a size, as shares of the level above it, once a second in both traces.
func withGap(gap float64, seed uint64, size func(x float64) float64) Series {
	random := rand.New(rand.NewPCG(seed, 2))
	var s Series
	for x := 0.0; x < firstTrace+gap+secondTrace; x++ {
		if x < firstTrace || x >= firstTrace+gap {
			s.X = append(s.X, x)
			s.Y = append(s.Y, gapLevel*(1+size(x)+0.0003*random.NormFloat64()))
		}
	}
	return s
}

func TestJudgeWithGap(t *testing.T) {
	const perMinute = 0.002 // of the level
	spike := func(x float64) float64 {
		if math.Mod(x, 20) < 4 {
			return 0.3
		}
		return 0
	}
	for name, c := range map[string]struct {
		size func(x float64) float64
		want Class
	}{
		"leak":       {func(x float64) float64 { return perMinute * x / 60 }, ClassLeak},
		"spiky leak": {func(x float64) float64 { return perMinute*x/60 + spike(x) }, ClassLeak},
		"flat":       {func(float64) float64 { return 0 }, ClassPlateau},
		"spiky":      {spike, ClassSpikyPlateau},
	} {
		for _, gap := range gaps {
			t.Run(fmt.Sprintf("%s, gap of %.0f s", name, gap), func(t *testing.T) {
				s := withGap(gap, uint64(gap), c.size)
				v := Judge(s, Setting{Age: 2 * 3600}, InSeconds())
				if v.Class != c.want {
					t.Errorf("%s (%s), want %s", v.Class, v.Reason, c.want)
				}
				if c.want == ClassLeak {
					rate := perMinute / 60 * gapLevel
					if v.RateLow > rate || v.RateHigh < rate {
						t.Errorf("rate %v to %v, not %v", v.RateLow, v.RateHigh, rate)
					}
				}
			})
		}
	}
}

// A step within the gap is no steady growth.
func TestJudgeStepInGap(t *testing.T) {
	for _, gap := range gaps {
		for seed := range uint64(20) {
			s := withGap(gap, seed, func(x float64) float64 {
				if x >= firstTrace {
					return 0.05
				}
				return 0
			})
			if v := Judge(s, Setting{Age: 2 * 3600}, InSeconds()); v.Class.Grows() {
				t.Errorf("gap of %.0f s, seed %d: %s (%s)", gap, seed, v.Class, v.Reason)
			}
		}
	}
}

// Series without a leak, of which only the first five minutes and the last eleven were seen.
func TestFalseAlarmsWithGap(t *testing.T) {
	alarms := tally{}
	for f, h := range histories(60, decidable, []float64{halfAnHour, fourHours}, noLeak, 9e6) {
		end := h.series.X[len(h.series.X)-1] - secondTrace
		var seen Series
		for i, x := range h.series.X {
			if x < firstTrace || x >= end {
				seen.X, seen.Y = append(seen.X, x), append(seen.Y, h.series.Y[i])
			}
		}
		h.series = seen
		alarms.count(f.name, h.judgedLeak())
	}
	alarms.atMost(t, "false alarms", 1, 5)
}
