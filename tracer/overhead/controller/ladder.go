package controller

// openFully begins to watch every call.
func (g *Governor) openFully(format string, arguments ...any) {
	g.mode, g.window = Full, window{}
	g.budget.saved = max(g.budget.saved, burst*g.budget.rate()/2)
	g.openedAt = g.now
	g.tensor.alone = false
	g.change(format, arguments...)
}

// watchFull closes the probes when what they may take at once is spent.
func (g *Governor) watchFull() {
	g.tuneFull()
	if g.budget.saved >= 0 || g.coarsen() {
		return
	}
	lately := g.lately()
	g.full.fell(g.now)
	g.open += g.now - g.openedAt
	g.tensor.alone, g.tensor.from = g.canStayAlone(lately, 1), g.now
	g.steps.forget()
	g.foresight = foresight{}
	g.foresight.add(lately, max(lately.elapsed, 0.01))
	if g.isAuto() {
		g.windowInterval = g.fullInterval
	}
	g.tuneWindows(lately)
	g.rest(window{phase: settling})
	g.goDown(g.plan(), lately)
}

// lately is the worse of the last second and the last moment: a storm has just begun, but other calls come in bursts.
func (g *Governor) lately() spending {
	second, moment := g.budget.minute.sum(min(1, g.now-g.openedAt)), g.budget.minute.sum(0)
	if moment.probes*second.elapsed > second.probes*moment.elapsed {
		return moment
	}
	return second
}

// goDown to windows, or lower.
func (g *Governor) goDown(p plan, lately spending) {
	to := Windows
	if !p.fits {
		to = Off
	}
	if g.mode == to {
		return
	}
	g.mode = to
	if to == Off {
		g.change("%s: closed, and looked at again for %s each minute or later", g.would(lately), span(p.length))
		return
	}
	g.change("%s: watched in windows of %s every %s", g.would(lately), span(p.length), span(p.spacing))
}

// A patience tells when it has been calm for long enough to go up the ladder. It grows with each time that this was too soon.
type patience struct {
	calm, needed int     // windows
	roseAt       float64 // s
}

const (
	fewestCalm = 3
	mostCalm   = 96
	tooSoon    = 600 // s
	calmShare  = 0.6 // of what probes may take
)

func patient() patience { return patience{needed: fewestCalm, roseAt: -tooSoon} }

// seen tells whether to go up after one more window.
func (p *patience) seen(calm bool) bool {
	p.calm++
	if !calm {
		p.calm = 0
	}
	return p.calm >= p.needed
}

func (p *patience) rose(now float64) { p.calm, p.roseAt = 0, now }

func (p *patience) fell(now float64) {
	p.calm = 0
	if now-p.roseAt < tooSoon {
		p.needed = min(mostCalm, 2*p.needed)
	} else {
		p.needed = fewestCalm
	}
}
