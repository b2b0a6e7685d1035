package verdict

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/stat"
)

// A line is fitted by least squares: it runs through the means of x and y.
type line struct{ x, y, slope float64 }

// lineThrough fits a line; a flat one where all x are equal.
func lineThrough(x, y []float64) line {
	l := line{x: stat.Mean(x, nil), y: stat.Mean(y, nil)}
	_, slope := stat.LinearRegression(x, y, nil, false)
	if !math.IsNaN(slope) && !math.IsInf(slope, 0) {
		l.slope = slope
	}
	return l
}

// at is the line's value at an x.
func (l line) at(x float64) float64 { return l.y + l.slope*(x-l.x) }

// residuals of the values. Rounding errors count as 0.
func (l line) residuals(x, y []float64) []float64 {
	residuals := make([]float64, len(x))
	for i := range x {
		if r := y[i] - l.at(x[i]); math.Abs(r) > 1e-12*math.Abs(y[i]) {
			residuals[i] = r
		}
	}
	return residuals
}

// squares is the residual sum of squares.
func (l line) squares(x, y []float64) float64 { return sumOfSquares(l.residuals(x, y)) }

// A plane is fitted by least squares: y = c + p P + q Q, of two columns P and Q. squares is the
// residual sum of squares.
type plane struct{ p, q, squares float64 }

// planeThrough fits a plane; false where the columns are collinear.
func planeThrough(p, q, y []float64) (plane, bool) {
	meanP, meanQ, meanY := stat.Mean(p, nil), stat.Mean(q, nil), stat.Mean(y, nil)
	var pp, qq, pq, py, qy float64
	for i := range y {
		dp, dq, dy := p[i]-meanP, q[i]-meanQ, y[i]-meanY
		pp, qq, pq = pp+dp*dp, qq+dq*dq, pq+dp*dq
		py, qy = py+dp*dy, qy+dq*dy
	}
	det := pp*qq - pq*pq
	if !(det > 1e-12*pp*qq) {
		return plane{}, false
	}

	f := plane{p: (py*qq - qy*pq) / det, q: (qy*pp - py*pq) / det}
	for i := range y {
		residual := y[i] - meanY - f.p*(p[i]-meanP) - f.q*(q[i]-meanQ)
		f.squares += residual * residual
	}

	return f, true
}

func sumOfSquares(values []float64) float64 { return floats.Dot(values, values) }

// autocorrelation at lag 1 of residuals; 0 for fewer than three, or where all are 0.
func autocorrelation(residuals []float64) float64 {
	all := sumOfSquares(residuals)
	if all == 0 || len(residuals) < 3 {
		return 0
	}
	return floats.Dot(residuals[1:], residuals[:len(residuals)-1]) / all
}

// effectiveN is the effective sample size n(1-φ)/(1+φ) of n values whose residuals have a lag-1
// autocorrelation φ, at least least.
func effectiveN(n int, residuals []float64, least float64) float64 {
	phi := min(max(autocorrelation(residuals), 0), 0.95)
	return max(float64(n)*(1-phi)/(1+phi), least)
}

// noiseFloor is added to residual sums of squares, so that fits that differ by noise compare as
// equal. The noise is 0.01% of the median, at least minNoise. The values are in bytes.
func noiseFloor(y []float64) float64 {
	const minNoise = 10_000 // bytes
	return float64(len(y)) * math.Pow(max(1e-4*math.Abs(median(y)), minNoise), 2)
}

// quantile is the value below which a share of the values lies, linear between neighbours (type 7
// of Hyndman and Fan, The American Statistician 50 (1996) 361; gonum's stat.Quantile has types 1 and
// 4). It sorts the values, of which there must be at least one.
func quantile(values []float64, share float64) float64 {
	slices.Sort(values)
	k, part := math.Modf(share * float64(len(values)-1))
	below := values[int(k)]
	if part == 0 {
		return below
	}
	return below + part*(values[int(k)+1]-below)
}

// median of at least one value, which it leaves in place.
func median(values []float64) float64 {
	return quantile(slices.Clone(values), 0.5)
}
