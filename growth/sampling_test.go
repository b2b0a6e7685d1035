package growth

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

func TestWeight(t *testing.T) {
	t.Run("known values", func(t *testing.T) {
		for _, c := range []struct {
			size, interval uint64
			want           float64
		}{
			{0, 0, 1},
			{4096, 0, 1},
			{0, 1, 1},
			{4096, 1, 1},
			{math.MaxUint64, 1, 1},
			{64 << 20, 512 << 10, 1},
			{math.MaxUint64, 512 << 10, 1},
			{2, 2, math.E / (math.E - 1)},
			{512 << 10, 512 << 10, math.E / (math.E - 1)},
		} {
			if w := Weight(c.size, c.interval); math.Abs(w-c.want) > 1e-12 {
				t.Errorf("Weight(%d, %d) = %v, want %v", c.size, c.interval, w, c.want)
			}
		}
	})

	// 1/(1-exp(-x)) = 1/x + 1/2 + x/12 - ... , where 1 - exp(-x) computed as it is written keeps
	// few digits.
	t.Run("small sizes keep their digits", func(t *testing.T) {
		for _, interval := range []uint64{512 << 10, 2 << 20, 1 << 32, 1 << 52} {
			for _, size := range []uint64{1, 8, 96} {
				x := float64(size) / float64(interval)
				want := 1/x + 0.5 + x/12
				if w := Weight(size, interval); math.Abs(w/want-1) > 1e-12 {
					t.Errorf("Weight(%d, %d) = %v, want %v", size, interval, w, want)
				}
			}
		}
	})

	// The samples of a Poisson process over the bytes of all allocations, laid end to end; no
	// formula of ours in it.
	t.Run("of a simulated process", func(t *testing.T) {
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
				t.Errorf("%d objects of %d bytes are estimated at %.0f: off by %.1f σ", objects,
					size, estimate, off)
			}
		}
	})
}

// poissonUpTo is the probability of at most n counts, summed term by term.
func poissonUpTo(n int, mean float64) float64 {
	var sum float64
	for k := n; k >= 0; k-- {
		logFactorial, _ := math.Lgamma(float64(k) + 1)
		sum += math.Exp(float64(k)*math.Log(mean) - mean - logFactorial)
	}
	return sum
}

func TestWeightedSum(t *testing.T) {
	// Objects that are small against the interval represent an interval each: their counts are
	// Poisson, with exact limits.
	t.Run("limits of Poisson counts", func(t *testing.T) {
		const interval = 512 << 10
		for _, n := range []int{1, 2, 5, 20, 300, 9_999, 10_001, 40_000} {
			amount := WeightedSum{
				Bytes: float64(n) * interval, Variance: float64(n) * interval * interval,
			}
			for _, risk := range []float64{0.025, 0.001, 0.05 / 2000} {
				low, high := amount.Low(risk)/interval, amount.High(risk, interval)/interval
				if got := 1 - poissonUpTo(n-1, low); math.Abs(got/risk-1) > 1e-3 {
					t.Errorf("%d counts: %.4f is passed at %.3g, want %.3g", n, low, got, risk)
				}
				if got := poissonUpTo(n, high); math.Abs(got/risk-1) > 1e-3 {
					t.Errorf("%d counts: %.4f is passed at %.3g, want %.3g", n, high, got, risk)
				}
			}
		}
	})

	t.Run("without samples", func(t *testing.T) {
		for _, risk := range []float64{0.5, 0.025, 1e-6} {
			got, want := (WeightedSum{}).High(risk, 64<<10), -math.Log(risk)*(64<<10)
			if math.Abs(got/want-1) > 1e-9 {
				t.Errorf("at risk %g %.0f bytes may have been missed, want %.0f", risk, got, want)
			}
			if got := (WeightedSum{}).Low(risk); got != 0 {
				t.Errorf("at least %.0f bytes of nothing", got)
			}
		}
	})

	t.Run("large objects have no error", func(t *testing.T) {
		large := WeightedSum{Bytes: 1 << 30}
		small := WeightedSum{Bytes: 64 << 10, Variance: 64 << 10 * 64 << 10}
		if low := large.Low(0.025); low != 1<<30 {
			t.Errorf("at least %.0f bytes, want all", low)
		}
		both := WeightedSum{Bytes: large.Bytes + small.Bytes, Variance: small.Variance}
		if got, want := both.Bytes-both.Low(0.025), 3*small.Bytes; got > want {
			t.Errorf("a small object among large ones takes %.0f off the low limit, more than %.0f",
				got, want)
		}
	})

	t.Run("rounding errors", func(t *testing.T) {
		for _, c := range []struct{ rest, want WeightedSum }{
			{WeightedSum{0.7, 3}, WeightedSum{}},
			{WeightedSum{-0.4, 1000}, WeightedSum{}},
			{WeightedSum{math.NaN(), 1}, WeightedSum{}},
			{WeightedSum{0, -5}, WeightedSum{}},
			{WeightedSum{100, -0.1}, WeightedSum{Bytes: 100}},
			{WeightedSum{10, 1e6}, WeightedSum{10, 100}}, // more than one sample can have
		} {
			if got := c.rest.Clamp(); got != c.want {
				t.Errorf("%+v is taken for %+v, want %+v", c.rest, got, c.want)
			}
		}
	})
}

// An even leak of 100 s is 50 s old on average; a cache filled in the first 10 s is 95 s old.
func TestAge(t *testing.T) {
	s := &Snapshot{Elapsed: 100 * time.Second}
	var leak, cache Holding
	for bin := range 10 {
		s.Bins = append(s.Bins, time.Duration(10*(bin+1))*time.Second)
		leak.AddBirth(Birth{Bin: bin, InuseBytes: 1000})
	}
	cache.AddBirth(Birth{Bin: 0, InuseBytes: 3000})
	for name, c := range map[string]struct {
		holdings []*Holding
		want     time.Duration
		known    bool
	}{
		"leak":           {[]*Holding{&leak}, 50 * time.Second, true},
		"cache":          {[]*Holding{&cache}, 95 * time.Second, true},
		"both, by bytes": {[]*Holding{&leak, &cache}, 60384615384 * time.Nanosecond, true},
		"no births":      {[]*Holding{{InuseBytes: 1000}}, 0, false},
		"beyond bins":    {[]*Holding{{Births: []Birth{{Bin: 10, InuseBytes: 1}, {Bin: -1, InuseBytes: 1}}}}, 0, false},
	} {
		var age Age
		for _, h := range c.holdings {
			age.Add(s, h)
		}
		if got, known := age.Mean(); known != c.known || (got-c.want).Abs() > time.Microsecond {
			t.Errorf("%s: %v, %v, want %v, %v", name, got, known, c.want, c.known)
		}
	}
}
