package growth

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A trainer that was attached to while it read its data: no curve that slows down from the start explains it.
func TestALeakIsFoundHoweverLateTheWarmUpBeginsBeforeIt(t *testing.T) {
	const minute, leak = 60.0, 5e6
	for late := range 8 {
		for _, every := range []float64{5, 15, 60} {
			random := rand.New(rand.NewPCG(uint64(late), uint64(every)))
			var s Series
			for x := 0.0; x < 40*minute; x += every {
				since := max(x/minute-float64(late), 0) // minutes
				s.X = append(s.X, x)
				s.Y = append(s.Y, 10e6+200e6*min(since/8, 1)+leak*since+1e6*random.Float64())
			}
			v := Judge(s, Setting{}, InSeconds())
			if v.Class != ClassLeak || math.Abs(v.Rate*minute-leak) > 0.05*leak {
				t.Errorf("%d min late, a sample every %.0f s: %s (%s) by %.3g a minute, want a leak of %.3g", late, every, v.Class, v.Why, v.Rate*minute, leak)
			}
		}
	}
}
