package verdict

import (
	"math"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// unseenDriftShare of the level over a segment is the standard error of drifts that are slower than
// the segment and are invisible in its residuals.
const unseenDriftShare = 0.0025

// A slope is estimated in bytes per X, with its standard error and degrees of freedom.
type slope struct{ rate, err, freedom float64 }

// margin is the one-sided error of the slope at a confidence, by Student's t.
func (s slope) margin(confidence float64) float64 {
	return distuv.StudentsT{Mu: 0, Sigma: 1, Nu: s.freedom}.Quantile(confidence) * s.err
}

// slopeOf estimates the slope of an envelope of at least 5 points. It adds the error of an unseen
// drift.
func slopeOf(e envelope) slope {
	s := slopeWithoutDrift(e)
	drift := unseenDriftShare * math.Abs(median(e.y)) / e.length()
	s.err = math.Hypot(s.err, drift)
	return s
}

// slopeWithoutDrift estimates a slope with autocorrelated errors. The slopes of means over 2 and 4
// points have wider intervals where errors last longer than one point: it takes the widest.
func slopeWithoutDrift(e envelope) (widest slope) {
	for _, width := range []int{1, 2, 4} {
		if width > 1 && len(e.x)/width < 10 {
			break
		}
		s := praisWinsten(means(e.x, width), means(e.y, width))
		if width == 1 || s.margin(.975) > widest.margin(.975) {
			widest = s
		}
	}
	return widest
}

// means over every width values.
func means(values []float64, width int) []float64 {
	m := make([]float64, len(values)/width)
	for i := range m {
		m[i] = stat.Mean(values[i*width:(i+1)*width], nil)
	}
	return m
}

// praisWinsten estimates a slope whose errors are autoregressive of order 1, by generalised least
// squares (Prais and Winsten 1954). Where the autocorrelation is close to 1, it takes the mean of
// the differences (Perron and Yabu, Journal of Econometrics 151 (2009) 56).
func praisWinsten(x, y []float64) slope {
	n := float64(len(x))
	phi := autocorrelation(lineThrough(x, y).residuals(x, y))
	phi += (2 + 4*phi) / n // bias correction
	if phi > 1-1/math.Sqrt(n) {
		return randomWalkSlope(x, y)
	}
	phi = max(phi, 0)

	meanX, meanY := stat.Mean(x, nil), stat.Mean(y, nil)
	one := quasiDifferences(phi, len(x), func(int) float64 { return 1 })
	dx := quasiDifferences(phi, len(x), func(i int) float64 { return x[i] - meanX })
	dy := quasiDifferences(phi, len(x), func(i int) float64 { return y[i] - meanY })

	var oo, ox, xx, oy, xy float64
	for i := range one {
		oo, ox, xx = oo+one[i]*one[i], ox+one[i]*dx[i], xx+dx[i]*dx[i]
		oy, xy = oy+one[i]*dy[i], xy+dx[i]*dy[i]
	}
	det := oo*xx - ox*ox
	rate, offset := (xy*oo-oy*ox)/det, (oy*xx-xy*ox)/det

	var rss float64
	for i := range one {
		residual := dy[i] - offset*one[i] - rate*dx[i]
		rss += residual * residual
	}
	freedom := max(4, min(n-2, n*(1-phi)/(1+phi)))

	return slope{rate: rate, err: math.Sqrt(rss / (n - 2) * oo / det), freedom: freedom}
}

// quasiDifferences returns n values, each less phi times the one before.
func quasiDifferences(phi float64, n int, value func(int) float64) []float64 {
	values := make([]float64, n)
	values[0] = math.Sqrt(1-phi*phi) * value(0)
	for i := 1; i < n; i++ {
		values[i] = value(i) - phi*value(i-1)
	}
	return values
}

// randomWalkSlope estimates the drift of a random walk.
func randomWalkSlope(x, y []float64) slope {
	n := len(x)
	length := x[n-1] - x[0]
	s := slope{rate: (y[n-1] - y[0]) / length, freedom: float64(n - 2)}

	var rss float64
	for i := 1; i < n; i++ {
		dx := max(x[i]-x[i-1], 1e-6*length) // almost equal moments
		residual := y[i] - y[i-1] - s.rate*dx
		rss += residual * residual / dx
	}
	s.err = math.Sqrt(rss / float64(n-2) / length)

	return s
}
