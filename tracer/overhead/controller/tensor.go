package controller

// tensor is source tensor beside source heap: it is open all the time where that takes no more than half of the budget,
// otherwise together with heap.
type tensor struct {
	alone    bool    // open while heap is closed
	from     float64 // when that began, or its interval was changed
	interval uint64
	patience
}

const (
	tensorPart = 0.5 // of the budget
	tensorSpan = 10  // s over which they have to keep to it
)

// besides tells whether tensors are watched beside heap, and not in its place.
func (g *Governor) besides() bool { return g.options.Heap && g.options.Tensor }

// canStayAlone tells whether the traps of tensors' probes would take at most so much of their part. Of three, one is at a function
// whose return may be probed. What their stacks take is not known among those of heap; where it is too much, that shows when they are alone.
func (g *Governor) canStayAlone(s spending, part float64) bool {
	p := g.options.Prices
	traps := 1e-9 * (s.tensors*p.Entry + min(s.tensors/3, s.returns)*p.Return)
	return g.besides() && traps <= part*tensorPart*g.budget.share()*s.work
}

// learn from a window whether tensors can be watched outside of it.
func (t *tensor) learn(g *Governor, s spending) {
	if t.alone || !t.seen(g.canStayAlone(s, calmShare)) {
		return
	}
	t.alone, t.from = true, g.now
	t.rose(g.now)
	g.change("tensor probes take less than half of the budget: open all the time")
}

// watchTensor takes fewer samples of tensors, or closes their probes, where they take too much for being open all the time.
func (g *Governor) watchTensor() {
	t := &g.tensor
	if !t.alone {
		return
	}
	lately := g.budget.minute.sum(min(tensorSpan, g.now-t.from))
	rate := min(g.budget.rate(), lately.allowed/max(lately.elapsed, slotLength)) // the minute may have allowed more
	if lately.idle <= tensorPart*rate*tensorSpan {
		return
	}
	t.from = g.now
	if g.isAuto() && t.interval < coarsestInterval && 2*lately.walking > lately.probes {
		t.interval *= 2
		return
	}
	t.alone = false
	t.fell(g.now)
	g.change("tensor probes take %s of the traced CPU time (%s): watched in the windows of heap",
		percent(lately.idle/max(lately.work, 1e-9)), calls(lately.tensors/max(lately.elapsed, 1e-3)))
}
