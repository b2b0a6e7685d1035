package growth

import (
	"math"
	"slices"
)

const (
	// sure is the one-sided confidence that growth needs.
	sure = 0.995
	// young: the last regime must be at least this share of the growth before it.
	young = 0.5
)

// evidence is what a series says about growth in its last regime.
type evidence struct {
	series   Series
	setting  Setting
	criteria Criteria
	course   course

	slope slope
	// level is the median of the base, in bytes.
	level float64
	// length of the regime, in X.
	length float64
	// growing: proven, and in all of the regime. slowing: and it slows down.
	growing, slowing bool
	// seasoned: growth can no longer be a warm-up.
	seasoned bool
}

func weigh(s Series, setting Setting, criteria Criteria, c course) *evidence {
	b := c.last.base
	e := &evidence{series: s, setting: setting, criteria: criteria, course: c}
	e.slope, e.level, e.length = slopeOf(b), median(b.y), e.series.end()-b.start()
	rise, step := e.slope.rate*e.length, quantum(e.series.Y)
	e.growing = e.slope.rate > e.slope.margin(sure) && rise > 4*step && keepsRising(b)
	e.slowing = e.growing && e.slowsDown()
	e.seasoned = e.oldEnough() && e.length >= max(3*e.setting.Cycle, young*e.course.grew, e.criteria.MinTail) &&
		!e.course.refill && !staircase(b.y, rise, step)
	return e
}

// born is when the process began, on the X axis.
func (e *evidence) born() float64 { return e.series.X[0] - e.setting.Age }

// keepsRising: from third to third the medians rise, at rates of which none is much less than the whole's. Samples of a busy machine
// are not evenly spaced: a third with few of them is the longer.
func keepsRising(b base) bool {
	var x, y [3]float64
	for k := range y {
		from, to := share(len(b.y), 3, k), share(len(b.y), 3, k+1)
		x[k], y[k] = median(b.x[from:to]), median(b.y[from:to])
	}
	rate := func(from, to int) float64 { return (y[to] - y[from]) / (x[to] - x[from]) }
	return y[2] > y[0] && min(rate(0, 1), rate(1, 2)) > 0.3*rate(0, 2)
}

// staircase: jumps make up most of the rise, and hardly any are in the second half. The highest size so far of a process that
// does not leak looks like that: it has ln 2 = 0.7 records in each half of a watch, however long.
func staircase(y []float64, rise, step float64) bool {
	jumps := make([]float64, len(y)-1)
	for i := range jumps {
		jumps[i] = y[i+1] - y[i]
	}
	usual := median(jumps)
	off := make([]float64, len(jumps))
	for i, j := range jumps {
		off[i] = math.Abs(j - usual)
	}
	const deviation = 1.4826 // of a normal distribution, in median absolute deviations
	large := max(6*deviation*median(off), 0.2*max(rise, 0), 1.5*step)
	var sum float64
	records := 0
	for i, j := range jumps {
		if math.Abs(j) <= large {
			continue
		}
		sum += j
		switch {
		case i < len(jumps)/2:
		case j > 0:
			records++
		default:
			records--
		}
	}
	return sum > 0.5*rise && records < 4
}

// quantum is the smallest step between sizes, in bytes, at least 1: of a sampler that prints whole megabytes, a megabyte. In a
// long series a part of the samples shows it.
func quantum(y []float64) float64 {
	const enough = 1 << 16
	some := make([]float64, 0, min(enough, len(y)))
	for i := 0; i < len(y); i += 1 + len(y)/enough {
		some = append(some, y[i])
	}
	slices.Sort(some)
	least := math.Inf(1)
	for i := 1; i < len(some); i++ {
		if step := some[i] - some[i-1]; step > 0 {
			least = min(least, step)
		}
	}
	return max(1, least)
}

// slowsDown: the best shape does; else, after an earlier regime, growth by the logarithm of the process's age explains more, or
// a parabola that bends down.
func (e *evidence) slowsDown() bool {
	r := e.course.last
	if r.shape.slowsDown() {
		return true
	}
	x, y := r.base.x, r.base.y
	rests := lineThrough(x, y).rests(x, y)
	straight := squares(rests) + noise(y)
	if len(e.course.left) > 0 && x[0] > e.born() {
		age := make([]float64, len(x))
		for i := range x {
			age[i] = math.Log(x[i] - e.born())
		}
		if lineThrough(age, y).squares(age, y)+noise(y) < straight {
			return true
		}
	}
	return bendsDown(r.base, straight, independent(len(x), rests, 4))
}

// bendsDown: a parabola ends at less than half the slope of its start, and explains much more than the straight line.
func bendsDown(b base, straight, worth float64) bool {
	middle := mean(b.x)
	u, uu := make([]float64, len(b.x)), make([]float64, len(b.x))
	for i, x := range b.x {
		u[i] = (x - middle) / b.length()
		uu[i] = u[i] * u[i]
	}
	p, solved := planeThrough(u, uu, b.y)
	return solved && p.q < 0 && p.p+p.q < 0.5*(p.p-p.q) && worth*math.Log(straight/(p.squares+noise(b.y))) > 3
}

// epochOver: the first pass over the data is known to have ended long enough ago.
func (e *evidence) epochOver() bool {
	return e.setting.EpochEnd != nil && e.series.end()-*e.setting.EpochEnd >= e.criteria.MinTail
}

// oldEnough: what grows now is not the process's first warm-up.
func (e *evidence) oldEnough() bool {
	fresh := e.setting.Age < e.criteria.Old
	switch {
	case e.setting.EpochEnd != nil:
		return e.epochOver()
	case e.course.late, fresh && len(e.course.left) == 0:
		return e.length >= e.criteria.Sure
	case fresh && e.slope.rate >= e.criteria.Fast*e.level:
		return e.length >= e.criteria.Warm
	}
	return e.series.end()-e.born() >= e.criteria.Warm
}
