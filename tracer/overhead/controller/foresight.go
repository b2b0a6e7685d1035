package controller

import "math"

// foresight keeps what the last windows took, to tell what the next one will.
type foresight struct{ seen []sight }

type sight struct {
	rate  float64 // seconds for each second that it was open
	share float64 // of the CPU time that the program took for itself
}

// add what a window took that was open for so many seconds.
func (f *foresight) add(s spending, open float64) {
	f.seen = append(f.seen, sight{min(s.probes/open, 1e6), s.share()})
	f.seen = f.seen[max(0, len(f.seen)-3):]
}

// rate is what the next window will take in a second of a program that now keeps so many cores running. Of three windows the
// middle one counts: neither a storm that is over nor a moment of rest.
func (f *foresight) rate(running float64) float64 {
	var a, b, c float64
	switch n := len(f.seen); n {
	case 0:
	case 3:
		a, b, c = f.seen[0].of(running), f.seen[1].of(running), f.seen[2].of(running)
	default:
		a = f.seen[n-1].of(running)
		b, c = a, a
	}
	return max(min(a, b), min(max(a, b), c))
}

func (s sight) of(running float64) float64 {
	if s.share == 0 {
		return 0
	}
	return min(s.rate, s.share*running)
}

// running is how many cores the program keeps running between windows: within them it may do little of its own. It tells that
// a storm is over without a look. Right after a window nothing is known.
func (g *Governor) running() float64 {
	if g.now-g.restFrom < 1 {
		return math.MaxFloat64
	}
	lately := g.budget.minute.sum(min(1, g.now-g.restFrom-slotLength))
	return lately.native / max(lately.elapsed, 0.01)
}
