package growth

import (
	"math/rand/v2"
	"testing"
)

// heldUpLeak is a process that starts for ten seconds and leaks at one rate ever after, slowed down to half of it for a second now and
// then: in bytes, every second.
func heldUpLeak(seed uint64, seconds int) Series {
	random := rand.New(rand.NewPCG(seed, 0))
	var s Series
	size, until := 50e6, 5+10*random.Float64()
	for i := range seconds {
		s.X, s.Y = append(s.X, float64(i)), append(s.Y, size)
		rate := 8e6
		if float64(i) >= until {
			rate *= 0.5
			until = float64(i) + 5 + 10*random.Float64()
		}
		if i < 10 {
			rate += 6e6
		}
		size += rate + 0.2e6*random.NormFloat64()
	}
	return s
}

// What is left out of such a watch is its start and not much more.
func TestALineThatIsHeldUpNowAndThenIsOneRegime(t *testing.T) {
	late, judged := 0, 0
	for seed := range uint64(60) {
		whole := heldUpLeak(seed, 300)
		for seconds := 100; seconds <= 300; seconds += 20 {
			v := Judge(whole.until(float64(seconds)), Setting{}, InSeconds())
			judged++
			if v.From > max(25, float64(seconds)/3) {
				late++
			}
		}
	}
	if late > judged/100 {
		t.Errorf("in %d of %d only the last two thirds count, or less", late, judged)
	}
}

func TestALineThatBendsByAQuarterIsTwo(t *testing.T) {
	for _, change := range []float64{0.75, 1.25} {
		s := Series{}
		size := 50e6
		random := rand.New(rand.NewPCG(1, 0))
		for i := range 300 {
			s.X, s.Y = append(s.X, float64(i)), append(s.Y, size)
			rate := 8e6
			if i >= 150 {
				rate *= change
			}
			size += rate + 0.2e6*random.NormFloat64()
		}
		if v := Judge(s, Setting{}, InSeconds()); !(v.From > 140 && v.From < 160) || v.RateLow > change*8e6 || v.RateHigh < change*8e6 {
			t.Errorf("after a change to %v: since %v, rate %v (%v to %v)", change, v.From, v.Rate, v.RateLow, v.RateHigh)
		}
	}
}
