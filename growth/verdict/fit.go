package verdict

import (
	"math"

	"gonum.org/v1/gonum/stat"
)

// A curveKind is a family of curves.
type curveKind int

const (
	curveLine        curveKind = iota
	curveExponential           // saturating
	curveLogarithm
	curveSettling    // an exponential on top of a line
	curveChangePoint // two lines
)

// A fit is the curve that explains an envelope best.
type fit struct {
	kind curveKind
	// scale of a curve, as a share of the envelope's length.
	scale float64
	// settled is when a curveSettling follows its line, as a share of the envelope's length.
	settled float64
	// limit of a curveExponential, in bytes.
	limit float64
	// changePoint is the index of the first point of the second line.
	changePoint   int
	before, after line
}

// A candidate is a fit with its residual sum of squares and its number of parameters.
type candidate struct {
	fit
	squares    float64
	parameters float64
}

// The scales that are tried.
var (
	exponentialScales = []float64{.02, .04, .07, .1, .15, .2, .3, .45, .7, 1}
	logarithmScales   = []float64{.002, .005, .01, .03, .1, .3, 1}
	settlingScales    = []float64{.01, .02, .03, .05, .07, .1, .15}
)

const (
	// maxLineResidual is the RMS residual, as a share of the rise, below which one line is
	// preferred to two: those residuals come from how samples fall between steps. A plateau of
	// minRemainingShare at the end leaves more.
	maxLineResidual = 0.005
	// minVarianceExplained by two lines, of the variance that the best other fit leaves
	// unexplained; more where the second line is steeper, as late growth needs more evidence than a
	// slowdown.
	minVarianceExplained     = 0.7
	minVarianceExplainedLate = 0.9
	// maxSlopeDifference, as a share of the steeper one, and maxLineStep, as a share of the rise,
	// between two lines that count as one. Bursts of probing slow a program down, which bends a
	// straight line by as much.
	maxSlopeDifference = 0.1
	maxLineStep        = 0.03
)

// fitOf chooses a curve by the Bayesian information criterion, with the effective sample size in
// place of the number of points.
func fitOf(e envelope) fit {
	u := make([]float64, len(e.x))
	for i := range u {
		u[i] = (e.x[i] - e.start()) / e.length()
	}
	floor := noiseFloor(e.y)
	l := lineThrough(u, e.y)
	candidates := []candidate{{fit{kind: curveLine}, l.squares(u, e.y), 2}}
	candidates = append(candidates, curveFits(u, e.y)...)
	twoLines, isBent := changePointOf(e)

	residuals := l.residuals(u, e.y)
	if isBent {
		residuals = e.residualsOfLines(twoLines.changePoint)
	}
	n := float64(len(u))
	effective := effectiveN(len(u), residuals, 5)
	criterion := func(c candidate) float64 {
		return effective*math.Log((c.squares+floor)/n) + c.parameters*math.Log(n)
	}

	best := candidates[0]
	for _, c := range candidates[1:] {
		if criterion(c) < criterion(best) {
			best = c
		}
	}
	if best.kind == curveLine && math.Sqrt(best.squares/n) < maxLineResidual*math.Abs(l.slope) {
		return best.fit
	}

	need := minVarianceExplained
	if twoLines.after.slope > twoLines.before.slope {
		need = minVarianceExplainedLate
	}
	if isBent && !twoLines.isOneLine(e) && criterion(twoLines) < criterion(best) &&
		1-(twoLines.squares+floor)/(best.squares+floor) > need {
		return twoLines.fit
	}

	if best.slowsDown() {
		if late, isLate := lateGrowthOf(e); isLate && late.explains(e, best) {
			return late.fit
		}
	}
	return best.fit
}

// slowsDown is true of growth that slows down without an end in sight.
func (f fit) slowsDown() bool { return f.kind == curveExponential || f.kind == curveLogarithm }

// isOneLine is true of two lines that rise alike, one where the other ends.
func (f fit) isOneLine(e envelope) bool {
	before, after := f.before.slope, f.after.slope
	if before <= 0 || after <= 0 ||
		math.Abs(after-before) > maxSlopeDifference*max(before, after) {
		return false
	}
	x := e.x[f.changePoint]
	return math.Abs(f.after.at(x)-f.before.at(x)) <= maxLineStep*min(before, after)*e.length()
}

// curveFits returns the best fit of each kind that rises and slows down. u runs from 0 to 1.
func curveFits(u, y []float64) []candidate {
	var fits []candidate
	for _, family := range []struct {
		kind   curveKind
		scales []float64
		curve  func(u, scale float64) float64
	}{
		{curveExponential, exponentialScales, saturation},
		{curveLogarithm, logarithmScales, logarithm},
	} {
		best, rises := candidate{squares: math.Inf(1)}, false
		for _, scale := range family.scales {
			w := along(u, scale, family.curve)
			l := lineThrough(w, y)
			if squares := l.squares(w, y); squares < best.squares {
				best = candidate{fit{kind: family.kind, scale: scale, limit: l.at(0)}, squares, 4}
				rises = l.slope > 0
			}
		}
		if rises {
			fits = append(fits, best)
		}
	}

	if c, settles := settlingFit(u, y); settles {
		fits = append(fits, c)
	}
	return fits
}

// settlingFit returns the best exponential warm-up on top of a line.
func settlingFit(u, y []float64) (candidate, bool) {
	best := candidate{squares: math.Inf(1)}
	if len(u) <= 8 {
		return best, false
	}

	for _, scale := range settlingScales {
		p, isSolved := planeThrough(u, along(u, scale, saturation), y)
		if !isSolved || p.q <= 0 || p.squares >= best.squares {
			continue
		}
		if settled := settledAt(p, scale); settled > 0 {
			best = candidate{fit{kind: curveSettling, scale: scale, settled: settled}, p.squares, 5}
		}
	}

	return best, !math.IsInf(best.squares, 1)
}

// settledAt returns when an exponential of a scale has settled on a line: after four scales. Where
// that would drop much of the series, and the line makes up most of the rise, it is when the
// exponential adds less than maxSlopeDifference to the line's slope. 0: it never adds more.
func settledAt(p plane, scale float64) float64 {
	const maxDropped = 0.2
	end := 4 * scale
	if end <= maxDropped || p.p <= p.q {
		return end
	}
	return max(0, min(end, scale*math.Log(p.q/(scale*maxSlopeDifference*p.p))))
}

func saturation(u, scale float64) float64 { return -math.Exp(-u / scale) }

func logarithm(u, scale float64) float64 { return math.Log1p(u / scale) }

func along(u []float64, scale float64, curve func(u, scale float64) float64) []float64 {
	w := make([]float64, len(u))
	for i := range u {
		w[i] = curve(u[i], scale)
	}
	return w
}

// minLinePoints is the least number of points of a line between n points.
func minLinePoints(n int) int { return max(3, n/20) }

// changePointOf returns the best pair of lines; false where there are too few points for two.
func changePointOf(e envelope) (candidate, bool) {
	n := len(e.x)
	least := minLinePoints(n)
	if n < 2*least+1 {
		return candidate{}, false
	}

	before, after := runningSquares(e)
	best := candidate{fit{kind: curveChangePoint}, math.Inf(1), 5}
	for k := least; k <= n-least; k++ {
		if squares := before[k-1] + after[k]; squares < best.squares {
			best.squares, best.changePoint = squares, k
		}
	}
	best.setLines(e)

	return best, true
}

// setLines fits the lines to each side of the change point.
func (f *fit) setLines(e envelope) {
	k := f.changePoint
	f.before, f.after = lineThrough(e.x[:k], e.y[:k]), lineThrough(e.x[k:], e.y[k:])
}

// residualsOfLines fits a line to each part between the bounds and returns the residuals of all.
func (e envelope) residualsOfLines(bounds ...int) (residuals []float64) {
	from := 0
	for _, to := range append(bounds, len(e.x)) {
		x, y := e.x[from:to], e.y[from:to]
		residuals = append(residuals, lineThrough(x, y).residuals(x, y)...)
		from = to
	}
	return residuals
}

// runningSquares returns the residual sum of squares of a line through the points up to each, and of
// one through the points from each on.
func runningSquares(e envelope) (before, after []float64) {
	n := len(e.x)
	before, after = make([]float64, n), make([]float64, n)
	meanY := stat.Mean(e.y, nil)
	var forth, back runningLine
	for i := range n {
		before[i] = forth.add((e.x[i]-e.start())/e.length(), e.y[i]-meanY)
		j := n - 1 - i
		after[j] = back.add((e.x[j]-e.end())/e.length(), e.y[j]-meanY)
	}
	return before, after
}

// A runningLine has the sums of the points so far.
type runningLine struct{ n, x, y, xx, xy, yy float64 }

// add adds a point and returns the residual sum of squares of the line through all points.
func (r *runningLine) add(x, y float64) (squares float64) {
	r.n, r.x, r.y = r.n+1, r.x+x, r.y+y
	r.xx, r.xy, r.yy = r.xx+x*x, r.xy+x*y, r.yy+y*y
	xx, xy, yy := r.xx-r.x*r.x/r.n, r.xy-r.x*r.y/r.n, r.yy-r.y*r.y/r.n
	if xx > 1e-12 { // of a length of 1: below, it is rounding error
		yy -= xy * xy / xx
	}
	return max(yy, 0)
}

// A lateGrowth begins late and later slows down, in three lines of which the second is the
// steepest. Curves that slow down are steepest at their beginning. Its change point is where growth
// begins; the rest is left to the next segment.
type lateGrowth struct {
	candidate
	slowdown int // index of the first point of the third line
}

// lateGrowthOf returns the best three lines; false where there are too few points for three, or the
// second is not the steepest.
func lateGrowthOf(e envelope) (lateGrowth, bool) {
	n := len(e.x)
	least := minLinePoints(n)
	before, after := runningSquares(e)
	meanY := stat.Mean(e.y, nil)
	best := lateGrowth{candidate: candidate{fit{kind: curveChangePoint}, math.Inf(1), 8}}
	for k := least; k <= n-2*least; k++ {
		var middle runningLine
		for next := k + 1; next <= n-least; next++ {
			squares := middle.add((e.x[next-1]-e.start())/e.length(), e.y[next-1]-meanY)
			squares += before[k-1] + after[next]
			if next-k >= least && squares < best.squares {
				best.squares, best.changePoint, best.slowdown = squares, k, next
			}
		}
	}
	if best.changePoint == 0 {
		return lateGrowth{}, false
	}

	best.setLines(e)
	k, next := best.changePoint, best.slowdown
	slope := lineThrough(e.x[k:next], e.y[k:next]).slope
	last := lineThrough(e.x[next:], e.y[next:]).slope

	return best, slope > max(best.before.slope, last)
}

// explains is true where the three lines explain most of the variance that another fit leaves
// unexplained, and the Bayesian information criterion prefers them.
func (g lateGrowth) explains(e envelope, other candidate) bool {
	n, floor := float64(len(e.x)), noiseFloor(e.y)
	effective := effectiveN(len(e.x), e.residualsOfLines(g.changePoint, g.slowdown), 5)
	gain := effective * math.Log((other.squares+floor)/(g.squares+floor))
	return 1-(g.squares+floor)/(other.squares+floor) > minVarianceExplainedLate &&
		gain > (g.parameters-other.parameters)*math.Log(n)
}
