package growth

import (
	"math"
	"testing"
)

// poissonUpTo is the probability of at most n counts, summed term by term.
func poissonUpTo(n int, mean float64) float64 {
	var sum float64
	for k := n; k >= 0; k-- {
		logFactorial, _ := math.Lgamma(float64(k) + 1)
		sum += math.Exp(float64(k)*math.Log(mean) - mean - logFactorial)
	}
	return sum
}

// Objects that are small against the interval stand for an interval each: their counts are Poisson, with exact limits.
func TestTheLimitsOfEqualWeightsAreThoseOfPoissonCounts(t *testing.T) {
	const interval = 512 << 10
	for _, n := range []int{1, 2, 5, 20, 300, 9_999, 10_001, 40_000} {
		amount := WeightedSum{Bytes: float64(n) * interval, Variance: float64(n) * interval * interval}
		for _, risk := range []float64{0.025, 0.001, 0.05 / 2000} {
			low, high := amount.Low(risk)/interval, amount.High(risk, interval)/interval
			if got := 1 - poissonUpTo(n-1, low); math.Abs(got/risk-1) > 1e-3 {
				t.Errorf("of %d counts, the low limit %.4f is passed with probability %.3g, want %.3g", n, low, got, risk)
			}
			if got := poissonUpTo(n, high); math.Abs(got/risk-1) > 1e-3 {
				t.Errorf("of %d counts, the high limit %.4f is passed with probability %.3g, want %.3g", n, high, got, risk)
			}
		}
	}
}

func TestNoSampleAtAllLeavesRoomForAFewIntervals(t *testing.T) {
	for _, risk := range []float64{0.5, 0.025, 1e-6} {
		if got, want := (WeightedSum{}).High(risk, 64<<10), -math.Log(risk)*(64<<10); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("at risk %g up to %.0f bytes may have been missed, want %.0f", risk, got, want)
		}
		if got := (WeightedSum{}).Low(risk); got != 0 {
			t.Errorf("at least %.0f bytes of nothing", got)
		}
	}
}

func TestWhatIsNotSampledIsExact(t *testing.T) {
	for _, interval := range []float64{0, 1} {
		amount := WeightedSum{Bytes: 12345}
		if low, high := amount.Low(0.025), amount.High(0.025, interval); low != 12345 || high != 12345 {
			t.Errorf("at an interval of %g: %g to %g bytes", interval, low, high)
		}
	}
}

func TestObjectsFarLargerThanTheIntervalHaveNoErrorOfTheirOwn(t *testing.T) {
	large := WeightedSum{Bytes: 1 << 30}
	small := WeightedSum{Bytes: 64 << 10, Variance: 64 << 10 * 64 << 10}
	if low := large.Low(0.025); low != 1<<30 {
		t.Errorf("at least %.0f bytes, want all", low)
	}
	both := WeightedSum{Bytes: large.Bytes + small.Bytes, Variance: small.Variance}
	if got, want := both.Bytes-both.Low(0.025), 3*small.Bytes; got > want {
		t.Errorf("a small object among large ones takes %.0f off the low limit, more than %.0f", got, want)
	}
}

func TestARestOfRoundingIsNoAmount(t *testing.T) {
	for _, rest := range []WeightedSum{{0.7, 3}, {-0.4, 1000}, {math.NaN(), 1}, {0, -5}} {
		if got := rest.Clamp(); got != (WeightedSum{}) {
			t.Errorf("%+v is taken for %+v", rest, got)
		}
	}
	if got, want := (WeightedSum{100, -0.1}).Clamp(), (WeightedSum{Bytes: 100}); got != want {
		t.Errorf("a variance below 0 is taken for %+v", got)
	}
	if got, want := (WeightedSum{10, 1e6}).Clamp(), (WeightedSum{10, 100}); got != want {
		t.Errorf("a variance above what one sample can have is taken for %+v", got)
	}
}
