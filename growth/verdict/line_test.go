package verdict

import (
	"math"
	"math/rand/v2"
	"testing"
)

// correlated are errors of deviation 1 that remember a share of the one before.
func correlated(random *rand.Rand, n int, memory float64) []float64 {
	e := make([]float64, n)
	last := random.NormFloat64()
	for i := range e {
		last = memory*last + math.Sqrt(1-memory*memory)*random.NormFloat64()
		e[i] = last
	}
	return e
}

func TestSlope(t *testing.T) {
	t.Run("the interval covers the truth under autocorrelation", func(t *testing.T) {
		random := rand.New(rand.NewPCG(13, 14))
		const runs, n, truth = 1000, 96, 0.5
		for _, memory := range []float64{0, 0.3, 0.6, 0.9} {
			held, over := 0, 0
			for range runs {
				b := envelope{y: correlated(random, n, memory)}
				for i := range n {
					b.x = append(b.x, float64(i))
					b.y[i] += truth * float64(i-n/2) // around 0: no unseen drift is added
				}
				s := slopeOf(b)
				if math.Abs(s.rate-truth) <= s.margin(.975) {
					held++
				}
				if s.rate+s.margin(.95) >= truth {
					over++
				}
			}
			if held < runs*93/100 || over < runs*93/100 {
				t.Errorf("memory %v: the interval holds the slope in %d, the bound in %d of %d",
					memory, held, over, runs)
			}
		}
	})

	// The steps of a random walk are independent: their mean is the slope, and the error is the
	// error of a mean.
	t.Run("of a random walk", func(t *testing.T) {
		random := rand.New(rand.NewPCG(15, 16))
		var x, y []float64
		var sum, squared float64
		const n = 400
		for i := range n {
			x, y = append(x, float64(i)), append(y, sum)
			step := 3 + 10*random.NormFloat64()
			if i < n-1 {
				sum += step
				squared += step * step
			}
		}
		steps := float64(n - 1)
		variance := (squared - sum*sum/steps) / (steps - 1)
		s := praisWinsten(x, y)
		if !near(s.rate, sum/steps, 1e-9) || !near(s.err, math.Sqrt(variance/steps), 1e-9) ||
			s.freedom != n-2 {
			t.Errorf("%+v, want %v with an error of %v", s, sum/steps, math.Sqrt(variance/steps))
		}
	})
}

func TestResiduals(t *testing.T) {
	var x, y []float64
	for i := range 97 {
		x, y = append(x, 0.1*float64(i)), append(y, 1e9/3+0.7*float64(i))
	}
	for i, rest := range lineThrough(x, y).residuals(x, y) {
		if rest != 0 {
			t.Fatalf("point %d is off a straight line by %v", i, rest)
		}
	}
}
