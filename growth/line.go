package growth

import "math"

// A line is one of least squares: through the means of x and y, with a slope.
type line struct{ x, y, slope float64 }

// lineThrough fits a line; flat where all x are the same.
func lineThrough(x, y []float64) line {
	l := line{x: mean(x), y: mean(y)}
	var xx, xy float64
	for i := range x {
		dx := x[i] - l.x
		xx += dx * dx
		xy += dx * (y[i] - l.y)
	}
	if xx > 0 {
		l.slope = xy / xx
	}
	return l
}

// at is the line's value at an x.
func (l line) at(x float64) float64 { return l.y + l.slope*(x-l.x) }

// rests are what the line leaves of the values. What rounding leaves is nothing.
func (l line) rests(x, y []float64) []float64 {
	rests := make([]float64, len(x))
	for i := range x {
		if rest := y[i] - l.at(x[i]); math.Abs(rest) > 1e-12*math.Abs(y[i]) {
			rests[i] = rest
		}
	}
	return rests
}

// squares is the sum of the squared rests.
func (l line) squares(x, y []float64) float64 { return squares(l.rests(x, y)) }

// A plane is one of least squares: a constant + p P + q Q, of two columns P and Q.
type plane struct {
	p, q float64
	// squares is the sum of the squared rests.
	squares float64
}

// planeThrough fits a plane; not where one column follows from the other.
func planeThrough(p, q, y []float64) (plane, bool) {
	meanP, meanQ, meanY := mean(p), mean(q), mean(y)
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
		rest := y[i] - meanY - f.p*(p[i]-meanP) - f.q*(q[i]-meanQ)
		f.squares += rest * rest
	}
	return f, true
}

func mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

func squares(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v * v
	}
	return sum
}

// lag1 is the correlation of each rest with the next; 0 where there are too few, or nothing is left.
func lag1(rests []float64) float64 {
	all := squares(rests)
	if all == 0 || len(rests) < 3 {
		return 0
	}
	var sum float64
	for i := 1; i < len(rests); i++ {
		sum += rests[i] * rests[i-1]
	}
	return sum / all
}

// independent is how many independent values n correlated ones are worth, at least least.
func independent(n int, rests []float64, least float64) float64 {
	phi := min(max(lag1(rests), 0), 0.95)
	return max(float64(n)*(1-phi)/(1+phi), least)
}

// noise is the sum of squares that says nothing: a fit that leaves less is not the better one. The values are in bytes.
func noise(y []float64) float64 {
	const least = 10_000 // bytes
	return float64(len(y)) * math.Pow(max(1e-4*math.Abs(median(y)), least), 2)
}
