package growth

import "math"

// A rise is growth that begins late and later slows down, in three lines, the second of which is the steepest. Curves that slow down
// begin with the steepest growth.
type rise struct {
	candidate
	slows int // the first point of the third line
}

// lateRise is the best one; none where there are too few points for three lines, or the second is not the steepest. It is a knot where the
// growth begins: the rest is the next regime's.
func lateRise(b base) (rise, bool) {
	n := len(b.x)
	least := max(3, n/20)
	before, behind := lineSquares(b)
	height := mean(b.y)
	best := rise{candidate: candidate{shape{form: formKnot}, math.Inf(1), 8}}
	for k := least; k <= n-2*least; k++ {
		var middle runningLine
		for next := k + 1; next <= n-least; next++ {
			squares := middle.add((b.x[next-1]-b.start())/b.length(), b.y[next-1]-height)
			if squares += before[k-1] + behind[next]; next-k >= least && squares < best.squares {
				best.squares, best.knot, best.slows = squares, k, next
			}
		}
	}
	if best.knot == 0 {
		return rise{}, false
	}
	best.before, best.behind = lineThrough(b.x[:best.knot], b.y[:best.knot]), lineThrough(b.x[best.knot:], b.y[best.knot:])
	slope := lineThrough(b.x[best.knot:best.slows], b.y[best.knot:best.slows]).slope
	return best, slope > max(best.before.slope, lineThrough(b.x[best.slows:], b.y[best.slows:]).slope)
}

// explains tells that the three lines explain most of what another shape leaves, by the Bayesian information criterion, too.
func (r rise) explains(b base, other candidate) bool {
	const most = 0.9
	n, floor := float64(len(b.x)), noise(b.y)
	worth := independent(len(b.x), r.rests(b), 5)
	gain := worth * math.Log((other.squares+floor)/(r.squares+floor))
	return 1-(r.squares+floor)/(other.squares+floor) > most && gain > (r.parameters-other.parameters)*math.Log(n)
}

// rests are what the three lines leave.
func (r rise) rests(b base) (rests []float64) {
	bounds := []int{0, r.knot, r.slows, len(b.x)}
	for i := range 3 {
		x, y := b.x[bounds[i]:bounds[i+1]], b.y[bounds[i]:bounds[i+1]]
		rests = append(rests, lineThrough(x, y).rests(x, y)...)
	}
	return rests
}
