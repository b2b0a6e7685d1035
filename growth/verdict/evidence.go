package verdict

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

const (
	// growthConfidence is the one-sided confidence at which growth is proven.
	growthConfidence = 0.995
	// minGap is a gap between points of an envelope, as a multiple of their usual distance.
	minGap = 5
	// minSegmentShare is the shortest last segment, as a share of the growth before it.
	minSegmentShare = 0.5
)

// evidence has the signs of growth in the last segment.
type evidence struct {
	series   Series
	setting  Setting
	criteria Criteria
	segments segmentation

	slope slope
	// level is the median of the envelope, in bytes.
	level float64
	// length of the segment, in X.
	length float64
	// isGrowing: growth is proven, and lasts throughout the segment. isSlowing: it also slows down.
	isGrowing, isSlowing bool
	// lack is the condition of a leak that the growth does not meet; empty: it is no warm-up. untilLeak is for
	// how much longer it must last, in X; NaN: no length alone proves it.
	lack      Lack
	untilLeak float64
}

func gatherEvidence(s Series, setting Setting, criteria Criteria, c segmentation) *evidence {
	base := c.last.envelope
	e := &evidence{
		series: s, setting: setting, criteria: criteria, segments: c,
		slope: slopeOf(base), level: median(base.y), length: s.end() - base.start(),
	}

	rise, step := e.slope.rate*e.length, smallestStep(e.series.Y)
	isProven := e.slope.rate > e.slope.margin(growthConfidence)
	e.isGrowing = isProven && rise > 4*step && risesInThirds(base)
	e.isSlowing = e.isGrowing && e.slowsDown()
	e.lack, e.untilLeak = e.lackOfLength()
	switch {
	case e.segments.isRefill:
		e.lack, e.untilLeak = LackNew, math.NaN()
	case isStaircase(base, rise, step):
		e.lack, e.untilLeak = LackSteady, math.NaN()
	}

	return e
}

// minLeakLength is the shortest segment of a leak, in X.
func (e *evidence) minLeakLength() float64 {
	return max(3*e.setting.Cycle, minSegmentShare*e.segments.growthBefore, e.criteria.MinLeakLength)
}

// born is when the process began, on the X axis.
func (e *evidence) born() float64 { return e.series.X[0] - e.setting.Age }

// risesInThirds is true where the medians rise from third to third, at rates not much below the
// whole's. It compares rates, not rises: the samples of a busy machine are uneven, so a third with
// few of them is the longer.
func risesInThirds(e envelope) bool {
	var x, y [3]float64
	for k := range y {
		from, to := partStart(len(e.y), 3, k), partStart(len(e.y), 3, k+1)
		x[k], y[k] = median(e.x[from:to]), median(e.y[from:to])
	}
	rate := func(from, to int) float64 { return (y[to] - y[from]) / (x[to] - x[from]) }
	return y[2] > y[0] && min(rate(0, 1), rate(1, 2)) > 0.3*rate(0, 2)
}

// isStaircase is true where jumps make up most of the rise, and few of them are in the second half.
// The running maximum of a process that does not leak looks like that: it sets ln 2 = 0.7 records
// in the second half of a series, however long.
//
// Over a gap in the series, the typical rate explains a larger difference, which is no jump.
func isStaircase(e envelope, rise, step float64) bool {
	jumps, distances, rates := make([]float64, len(e.y)-1), make([]float64, len(e.y)-1),
		make([]float64, len(e.y)-1)
	for i := range jumps {
		jumps[i], distances[i] = e.y[i+1]-e.y[i], e.x[i+1]-e.x[i]
		rates[i] = jumps[i] / distances[i]
	}
	usual, rate := median(distances), median(rates)
	for i, distance := range distances {
		if distance > minGap*usual {
			jumps[i] -= rate * (distance - usual)
		}
	}
	typical := median(jumps)
	deviations := make([]float64, len(jumps))
	for i, j := range jumps {
		deviations[i] = math.Abs(j - typical)
	}

	const perMAD = 1.4826 // σ of a normal distribution per median absolute deviation
	large := max(6*perMAD*median(deviations), 0.2*max(rise, 0), 1.5*step)
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

// smallestStep between sizes in bytes, at least 1: a megabyte for a sampler that prints whole
// megabytes. A part of the samples of a long series is enough.
func smallestStep(y []float64) float64 {
	const maxSamples = 1 << 16
	some := make([]float64, 0, min(maxSamples, len(y)))
	for i := 0; i < len(y); i += 1 + len(y)/maxSamples {
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

// slowsDown is true where the best fit slows down. After an earlier segment, it is also true where
// the logarithm of the process's age explains more than a line, or a parabola that bends down does.
func (e *evidence) slowsDown() bool {
	r := e.segments.last
	if r.fit.slowsDown() {
		return true
	}

	x, y := r.envelope.x, r.envelope.y
	residuals := lineThrough(x, y).residuals(x, y)
	lineSquares := sumOfSquares(residuals) + noiseFloor(y)
	if len(e.segments.earlier) > 0 && x[0] > e.born() {
		age := make([]float64, len(x))
		for i := range x {
			age[i] = math.Log(x[i] - e.born())
		}
		if lineThrough(age, y).squares(age, y)+noiseFloor(y) < lineSquares {
			return true
		}
	}

	return bendsDown(r.envelope, lineSquares, effectiveN(len(x), residuals, 4))
}

// bendsDown is true where a parabola ends at less than half the slope of its start, and explains
// much more than a line.
func bendsDown(e envelope, lineSquares, effective float64) bool {
	middle := stat.Mean(e.x, nil)
	u, uu := make([]float64, len(e.x)), make([]float64, len(e.x))
	for i, x := range e.x {
		u[i] = (x - middle) / e.length()
		uu[i] = u[i] * u[i]
	}

	p, isSolved := planeThrough(u, uu, e.y)
	return isSolved && p.q < 0 && p.p+p.q < 0.5*(p.p-p.q) &&
		effective*math.Log(lineSquares/(p.squares+noiseFloor(e.y))) > 3
}

// isEpochOver is true where the first pass over the data ended long enough ago.
func (e *evidence) isEpochOver() bool {
	end := e.setting.EpochEnd
	return end != nil && e.series.end()-*end >= e.criteria.MinLeakLength
}

// lackOfLength is the condition of a leak that takes longest to be met, and how much longer, in X;
// empty: all are met.
func (e *evidence) lackOfLength() (Lack, float64) {
	lack, longer := e.lackOfAge()
	if more := e.minLeakLength() - e.length; more > max(0, longer) {
		lack, longer = LackLength, more
	}
	if longer <= 0 {
		return "", 0
	}
	return lack, longer
}

// lackOfAge is why growth may be the process's first warm-up, and until when, in X from now; 0 or
// less: it is not.
func (e *evidence) lackOfAge() (Lack, float64) {
	isYoung := e.setting.Age < e.criteria.MatureAge
	switch end := e.setting.EpochEnd; {
	case end != nil:
		return LackEpoch, e.criteria.MinLeakLength - (e.series.end() - *end)
	case e.segments.isLate:
		return LackEarly, e.criteria.MinUnconfirmedLength - e.length
	case isYoung && len(e.segments.earlier) == 0:
		return LackWarmup, e.criteria.MinUnconfirmedLength - e.length
	case isYoung && e.slope.rate >= e.criteria.FastRate*e.level:
		return LackSlow, e.criteria.WarmupAge - e.length
	}
	return LackAge, e.criteria.WarmupAge - (e.series.end() - e.born())
}
