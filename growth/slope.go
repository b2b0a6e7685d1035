package growth

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// unseenDrift is the drift slower than the watch that nobody has seen, as a share of the level over the regime.
const unseenDrift = 0.0025

// A slope is estimated: in bytes per X, with its standard error and the degrees of freedom.
type slope struct{ rate, err, freedom float64 }

// margin is by how much the slope may be wrong on one side, at a probability.
func (s slope) margin(probability float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: s.freedom}.Quantile(probability) * s.err
}

// slopeOf is the slope of a base of at least 5 points, of which errors follow each other. What is estimated from means of 2
// and of 4 points as well is widest where the errors remember longer than one point: that one is taken, and the drift
// that has not been seen is added.
func slopeOf(b base) slope {
	var widest slope
	for _, m := range []int{1, 2, 4} {
		if m > 1 && len(b.x)/m < 10 {
			break
		}
		s := slopeUnderMemory(means(b.x, m), means(b.y, m))
		if m == 1 || s.margin(.975) > widest.margin(.975) {
			widest = s
		}
	}
	widest.err = math.Hypot(widest.err, unseenDrift*math.Abs(median(b.y))/b.length())
	return widest
}

func means(values []float64, of int) []float64 {
	m := make([]float64, len(values)/of)
	for i := range m {
		m[i] = mean(values[i*of : (i+1)*of])
	}
	return m
}

// slopeUnderMemory is the slope where each error remembers a share of the one before: generalised least squares of
// Prais and Winsten, and plain differences where the share is all but 1 (Perron and Yabu 2009).
func slopeUnderMemory(x, y []float64) slope {
	n := float64(len(x))
	memory := lag1(lineThrough(x, y).rests(x, y))
	memory += (2 + 4*memory) / n
	if memory > 1-1/math.Sqrt(n) {
		return slopeOfWalk(x, y)
	}
	memory = max(memory, 0)
	middle, height := mean(x), mean(y)
	one := forgetful(memory, len(x), func(int) float64 { return 1 })
	dx := forgetful(memory, len(x), func(i int) float64 { return x[i] - middle })
	dy := forgetful(memory, len(x), func(i int) float64 { return y[i] - height })

	var oo, ox, xx, oy, xy float64
	for i := range one {
		oo, ox, xx = oo+one[i]*one[i], ox+one[i]*dx[i], xx+dx[i]*dx[i]
		oy, xy = oy+one[i]*dy[i], xy+dx[i]*dy[i]
	}
	det := oo*xx - ox*ox
	rate, offset := (xy*oo-oy*ox)/det, (oy*xx-xy*ox)/det
	var left float64
	for i := range one {
		rest := dy[i] - offset*one[i] - rate*dx[i]
		left += rest * rest
	}
	freedom := max(4, min(n-2, n*(1-memory)/(1+memory)))
	return slope{rate: rate, err: math.Sqrt(left / (n - 2) * oo / det), freedom: freedom}
}

// forgetful are n values, each less what its error remembers of the one before.
func forgetful(memory float64, n int, value func(int) float64) []float64 {
	values := make([]float64, n)
	values[0] = math.Sqrt(1-memory*memory) * value(0)
	for i := 1; i < n; i++ {
		values[i] = value(i) - memory*value(i-1)
	}
	return values
}

// slopeOfWalk is the slope of a random walk with drift.
func slopeOfWalk(x, y []float64) slope {
	n := len(x)
	length := x[n-1] - x[0]
	s := slope{rate: (y[n-1] - y[0]) / length, freedom: float64(n - 2)}
	var left float64
	for i := 1; i < n; i++ {
		dx := max(x[i]-x[i-1], 1e-6*length) // all but the same moment
		rest := y[i] - y[i-1] - s.rate*dx
		left += rest * rest / dx
	}
	s.err = math.Sqrt(left / float64(n-2) / length)
	return s
}
