package controller

// When the first steps have been timed: when there are enough of them, or when this time in seconds or this part of the
// trace has passed. If none has come by firstStep, there are no steps.
const (
	firstStep    = 2.0
	timing       = 5.0
	timingOfPart = 0.05
)

// begin opens the probes once the first steps have been timed.
func (g *Governor) begin() {
	longest := timing
	if g.options.Duration > 0 {
		longest = min(longest, timingOfPart*g.options.Duration.Seconds())
	}
	n := len(g.steps.before.values)
	none := g.last.Steps <= 0 && n == 0
	if g.options.Steps && g.now < longest && n < enough && !(none && g.now >= firstStep) {
		return
	}
	g.begun, g.steerAt = true, g.now+steeringPause
	if n > 0 {
		g.openFully("%s timed: every call is probed", plural(n, "step"))
	} else {
		g.openFully("every call is probed")
	}
}

// How often steps are looked at, the shortest time between two changes of the budget by them, and how long it stays small,
// in seconds.
const (
	steeringEvery = 5
	steeringPause = 30
	easing        = 600
	leastThrottle = 1.0 / 64
)

// steer makes the budget smaller where steps show that prices are too low, and larger again later.
func (g *Governor) steer() {
	if !g.begun || g.now < g.steerAt {
		return
	}
	g.steerAt = g.now + steeringEvery
	slower, margin, ok := g.steps.slowdown()
	switch {
	case ok && slower-margin > g.options.Limit && g.budget.throttle > leastThrottle:
		g.throttle(g.budget.throttle / 2)
		g.change("steps are %s slower by the probes, more than %s: half the budget for these",
			percent(slower), percent(g.options.Limit))
	case g.budget.throttle < 1 && g.now-g.throttledAt >= easing:
		g.throttle(min(1, 2*g.budget.throttle))
		g.change("steps have not been too slow for ten minutes: twice the budget for probes")
	}
}

func (g *Governor) throttle(to float64) {
	g.budget.throttle = to
	g.throttledAt, g.steerAt = g.now, g.now+steeringPause
	g.steps.forget()
}
