package growth

import "math"

// A form is a kind of curve.
type form int

const (
	formLine form = iota
	formExponential
	formLogarithm
	formSettling // an exponential on top of a line
	formKnot     // two lines
)

// A shape is the curve that explains a base best.
type shape struct {
	form form
	// scale of a curve, as a share of the base's length.
	scale float64
	// settled is when an exponential on top of a line has settled, as a share of the base's length.
	settled float64
	// limit that an exponential tends to, in bytes.
	limit float64
	// knot is the first point of the second line; before and behind are the two lines.
	knot           int
	before, behind line
}

// straight is the share of its rise that a line may leave, root mean square, to be no pair of lines: a standstill of
// leastRest at its end leaves more.
const straight = 0.005

// A candidate is a shape with what speaks for and against it.
type candidate struct {
	shape
	squares    float64
	parameters float64
}

// The scales that are tried.
var (
	scalesExponential = []float64{.02, .04, .07, .1, .15, .2, .3, .45, .7, 1}
	scalesLogarithm   = []float64{.002, .005, .01, .03, .1, .3, 1}
	scalesSettling    = []float64{.01, .02, .03, .05, .07, .1, .15}
)

// shapeOf chooses by the Bayesian information criterion, with as many points as independent ones would be. Two lines need to
// explain most of what the best other shape leaves besides, and more where the second rises faster: growth that begins late
// needs more evidence than growth that slows down. A line that leaves next to nothing of its rise has none: what is left, however
// orderly, is how samples fall between steps. What begins late is no curve that slows down from the start.
func shapeOf(b base) shape {
	u := make([]float64, len(b.x))
	for i := range u {
		u[i] = (b.x[i] - b.start()) / b.length()
	}
	floor := noise(b.y)
	l := lineThrough(u, b.y)
	candidates := []candidate{{shape{form: formLine}, l.squares(u, b.y), 2}}
	candidates = append(candidates, curves(u, b.y)...)
	knot, bent := knotOf(b)
	rests := l.rests(u, b.y)
	if bent {
		rests = append(knot.before.rests(b.x[:knot.knot], b.y[:knot.knot]), knot.behind.rests(b.x[knot.knot:], b.y[knot.knot:])...)
	}
	n := float64(len(u))
	worth := independent(len(u), rests, 5)
	criterion := func(c candidate) float64 { return worth*math.Log((c.squares+floor)/n) + c.parameters*math.Log(n) }

	best := candidates[0]
	for _, c := range candidates[1:] {
		if criterion(c) < criterion(best) {
			best = c
		}
	}
	if best.form == formLine && math.Sqrt(best.squares/n) < straight*math.Abs(l.slope) {
		return best.shape
	}
	need := 0.7
	if knot.behind.slope > knot.before.slope {
		need = 0.9
	}
	if bent && !knot.isOneLine(b) && criterion(knot) < criterion(best) && 1-(knot.squares+floor)/(best.squares+floor) > need {
		return knot.shape
	}
	if best.slowsDown() {
		if late, rises := lateRise(b); rises && late.explains(b, best) {
			return late.shape
		}
	}
	return best.shape
}

// slowsDown tells that growth of this shape has no end in sight, and yet slows down.
func (s shape) slowsDown() bool { return s.form == formExponential || s.form == formLogarithm }

// How much two lines of a rise may differ and be one: in slope, as a share of the steeper one, and by a step between them, as a
// share of all that they rise. Probes that come in windows slow a program down now and then, which bends a straight line by as much.
const (
	sameSlope = 0.1
	sameLine  = 0.03
)

// isOneLine tells that the two lines of a knot rise alike, one where the other ends.
func (s shape) isOneLine(b base) bool {
	before, behind := s.before.slope, s.behind.slope
	if before <= 0 || behind <= 0 || math.Abs(behind-before) > sameSlope*max(before, behind) {
		return false
	}
	step := s.behind.at(b.x[s.knot]) - s.before.at(b.x[s.knot])
	return math.Abs(step) <= sameLine*min(before, behind)*b.length()
}

// curves are the best of each form that rises and slows down. u runs from 0 to 1.
func curves(u, y []float64) []candidate {
	var found []candidate
	for _, f := range []struct {
		form   form
		scales []float64
		curve  func(u, scale float64) float64
	}{{formExponential, scalesExponential, saturation}, {formLogarithm, scalesLogarithm, logarithm}} {
		best, rises := candidate{squares: math.Inf(1)}, false
		for _, scale := range f.scales {
			w := along(u, scale, f.curve)
			l := lineThrough(w, y)
			if squares := l.squares(w, y); squares < best.squares {
				best, rises = candidate{shape{form: f.form, scale: scale, limit: l.at(0)}, squares, 4}, l.slope > 0
			}
		}
		if rises {
			found = append(found, best)
		}
	}
	if c, settles := settling(u, y); settles {
		found = append(found, c)
	}
	return found
}

// settling is an exponential warm-up on top of a line: only where it explains more than a saturating exponential.
func settling(u, y []float64) (candidate, bool) {
	best := candidate{squares: math.Inf(1)}
	if len(u) <= 8 {
		return best, false
	}
	for _, scale := range scalesSettling {
		p, solved := planeThrough(u, along(u, scale, saturation), y)
		if !solved || p.q <= 0 || p.squares >= best.squares {
			continue
		}
		if settled := settledAt(p, scale); settled > 0 {
			best = candidate{shape{form: formSettling, scale: scale, settled: settled}, p.squares, 5}
		}
	}
	return best, !math.IsInf(best.squares, 1)
}

// settledAt is when an exponential of a scale has settled on a line: when it is all but over; where that leaves out much of the watch, and
// the line makes up most of the rise, when it adds no more to the line's slope than makes two lines differ. 0: it never adds more.
func settledAt(p plane, scale float64) float64 {
	const much = 0.2
	over := 4 * scale
	if over <= much || p.p <= p.q {
		return over
	}
	return max(0, min(over, scale*math.Log(p.q/(scale*sameSlope*p.p))))
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

// knotOf is the best pair of lines; none where there are too few points for two.
func knotOf(b base) (candidate, bool) {
	n := len(b.x)
	least := max(3, n/20)
	if n < 2*least+1 {
		return candidate{}, false
	}
	before, behind := lineSquares(b)
	best := candidate{shape{form: formKnot}, math.Inf(1), 5}
	for k := least; k <= n-least; k++ {
		if squares := before[k-1] + behind[k]; squares < best.squares {
			best.squares, best.knot = squares, k
		}
	}
	k := best.knot
	best.before, best.behind = lineThrough(b.x[:k], b.y[:k]), lineThrough(b.x[k:], b.y[k:])
	return best, true
}

// lineSquares are what a line leaves of the points up to each, and of those from each on: by running sums.
func lineSquares(b base) (before, behind []float64) {
	n := len(b.x)
	before, behind = make([]float64, n), make([]float64, n)
	height := mean(b.y)
	var forth, back runningLine
	for i := range n {
		before[i] = forth.add((b.x[i]-b.start())/b.length(), b.y[i]-height)
		j := n - 1 - i
		behind[j] = back.add((b.x[j]-b.end())/b.length(), b.y[j]-height)
	}
	return before, behind
}

// A runningLine knows what a line leaves of the points so far.
type runningLine struct{ n, x, y, xx, xy, yy float64 }

func (r *runningLine) add(x, y float64) (squares float64) {
	r.n, r.x, r.y = r.n+1, r.x+x, r.y+y
	r.xx, r.xy, r.yy = r.xx+x*x, r.xy+x*y, r.yy+y*y
	xx, xy, yy := r.xx-r.x*r.x/r.n, r.xy-r.x*r.y/r.n, r.yy-r.y*r.y/r.n
	if xx > 1e-12 { // of a length of 1: else rounding
		yy -= xy * xy / xx
	}
	return max(yy, 0)
}
