package controller

// Intervals that are chosen, in bytes: powers of two.
const (
	defaultInterval     = 512 << 10
	coarsestInterval    = 4 << 20
	firstWindowInterval = 64 << 10
	finestInterval      = 4 << 10
)

// What walking stacks may take where the interval is chosen: of the budget while every call is probed, and in a window of what
// the traps themselves take. Below the smaller number the interval is made finer again.
const (
	mostWalking, leastWalking             = 1.0 / 3, 1.0 / 24
	mostWindowWalking, leastWindowWalking = 1.0 / 4, 1.0 / 10

	tuneSpan  = 10  // s
	refineGap = 600 // s from one finer interval to the next change
)

func (g *Governor) isAuto() bool { return g.options.Interval == 0 }

// tuneFull chooses the interval while every call is probed.
func (g *Governor) tuneFull() {
	if !g.isAuto() || g.now-max(g.openedAt, g.intervalAt) < tuneSpan {
		return
	}
	s := g.budget.minute.sum(tuneSpan)
	may := g.budget.rate() * s.elapsed
	switch {
	case s.walking > mostWalking*may && g.fullInterval < coarsestInterval:
		g.setFull(2 * g.fullInterval)
		g.change("walking stacks takes %s of the traced CPU time: one sample in %s", percent(s.walking/max(s.work, 1e-9)), size(g.fullInterval))
	case s.walking < leastWalking*may && g.fullInterval > defaultInterval && g.now-g.intervalAt >= refineGap:
		g.setFull(g.fullInterval / 2)
		g.change("walking stacks takes little: one sample in %s", size(g.fullInterval))
	}
}

func (g *Governor) setFull(interval uint64) { g.fullInterval, g.intervalAt = interval, g.now }

// coarsen takes the largest interval in place of closing the probes, if walking stacks is what costs too much.
func (g *Governor) coarsen() bool {
	s := g.lately()
	if !g.isAuto() || g.fullInterval >= coarsestInterval || s.probes-s.walking > (1-mostWalking)*g.budget.rate()*s.elapsed {
		return false
	}
	g.setFull(coarsestInterval)
	g.budget.saved = burst * g.budget.rate() / 2
	g.change("walking stacks takes %s of the traced CPU time: one sample in %s", percent(s.walking/max(s.work, 1e-9)), size(g.fullInterval))
	return true
}

// tuneWindows chooses the interval of the next window by what the last one took.
func (g *Governor) tuneWindows(s spending) {
	traps := s.probes - s.walking
	if !g.isAuto() || traps <= 0 {
		return
	}
	walking := s.walking
	for walking > mostWindowWalking*traps && g.windowInterval < defaultInterval {
		g.windowInterval *= 2
		walking /= 2
	}
	for walking < leastWindowWalking*traps && g.windowInterval > finestInterval {
		g.windowInterval /= 2
		walking *= 2
	}
}
