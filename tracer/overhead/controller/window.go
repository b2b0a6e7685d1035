package controller

// A window is a time in which the probes are open.
type window struct {
	phase   phase
	from    float64 // s
	length  float64 // s, until it was decided to close it
	planned float64 // what it may take, in seconds
	sum     spending
	calm    bool
}

type phase int

const (
	closed   phase = iota
	opened         // probes are attached
	settling       // they are being detached: the next reading has the rest of what they took
)

const (
	longestWindow  = 0.5 // s
	shortestWindow = 0.1 // s
	shortestPause  = 5   // s, from one window to the next, on average
	mostAtOnce     = 15  // s of the budget in one window, unless it is the shortest: a quarter of what a minute allows
	lookEvery      = 60  // s, while windows are too much
	longestPause   = 600 // s, likewise
	// Windows are open for this part of the time at first and later: more teaches little.
	firstDuty, laterDuty = 0.05, 0.02
	dutyChanges          = 600 // s
	// planShare of what the probes may take is planned for, so that windows seldom have to wait for room in the minute.
	planShare = 0.9
)

// isClosed tells whether what the probes took since the last reading was not a window's.
func (g *Governor) isClosed() bool { return g.mode != Full && g.window.phase == closed }

// watchWindow opens and closes windows.
func (g *Governor) watchWindow(s spending) {
	w := &g.window
	switch w.phase {
	case closed:
		g.openWindow()
	case opened:
		w.sum.add(s)
		if g.now >= w.from+w.length-leastWait || w.sum.probes > max(2*w.planned, burst*g.budget.rate()) || g.budget.room() < 0 {
			w.phase, w.length = settling, max(g.now-w.from, 1e-3)
			w.calm = w.sum.share() < calmShare*g.budget.share()
			g.open += w.length
		}
	case settling:
		w.phase = closed
		if w.length > 0 {
			w.sum.add(s)
			g.learn()
		}
	}
}

// rest until the next window: as long as plans will say, times a number that is 1 on average. Windows come as if by chance, one as
// likely at any moment as at another: they resonate with nothing, and many come soon after another, to see what is young being freed.
func (g *Governor) rest(last window) {
	const longest, mean = 3, 0.9502 // 1 - exp(-longest)
	g.window = last
	g.restFrom, g.pace = g.now, min(g.random.ExpFloat64(), longest)/mean
}

// pause is the time left until the next window, in seconds.
func (g *Governor) pause(p plan) float64 { return g.restFrom + g.pace*p.spacing - g.now }

// openWindow when its time has come and the minute has room for it.
func (g *Governor) openWindow() {
	p := g.plan()
	if g.pause(p) > leastWait {
		return
	}
	if g.mode == Windows && !p.fits {
		g.goDown(p, g.window.sum)
		return
	}
	planned := p.rate * p.length
	if p.fits && g.budget.room() < planned {
		g.pace += 0.5 * g.random.Float64() // not as soon as there is room, which would be a minute after another window
		return
	}
	g.window = window{phase: opened, from: g.now, length: p.length, planned: planned}
	g.windows++
}

// learn from a window what the next ones will take, and whether they are needed.
func (g *Governor) learn() {
	w := g.window
	if g.mode == Off {
		g.foresight = foresight{}
	}
	g.foresight.add(w.sum, w.length)
	g.tensor.learn(g, w.sum)
	g.tuneWindows(w.sum)
	if g.full.seen(w.calm) {
		g.full.rose(g.now)
		g.openFully("%s: every call is probed again", g.would(w.sum))
		return
	}
	g.rest(w)
	if p := g.plan(); p.fits {
		g.goDown(p, w.sum)
	}
}

// A plan is how long windows are and how far apart they begin on average, in seconds.
type plan struct {
	length, spacing float64
	rate            float64 // what is foreseen that they take in a second
	fits            bool    // false: no window is short enough
}

// plan for the next window.
func (g *Governor) plan() plan {
	duty := laterDuty
	if g.now < dutyChanges {
		duty = firstDuty
	}
	longest := min(max(g.options.Maturity.Seconds()/2, shortestPause), 30)
	income := g.budget.rate()
	income = planShare * max(income-g.budget.total.idle/max(g.budget.total.elapsed, 1), income/4)
	rate := g.foresight.rate(g.running())
	length := max(shortestWindow, min(longestWindow, duty*longest))
	if most := min(longest, mostAtOnce) * income; rate*length > most {
		length = max(shortestWindow, most/rate)
	}
	if rate*length > longest*income {
		return plan{shortestWindow, min(max(lookEvery, rate*shortestWindow/income), longestPause), rate, false}
	}
	pause := max(shortestPause, length/duty)
	if g.window.calm {
		pause = shortestPause // to know soon whether it stays calm
	}
	return plan{length, min(longest, max(rate*length/income, pause)), rate, true}
}
