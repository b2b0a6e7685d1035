package controller

import "github.com/allocscope/allocscope/growth"

// The first steps are timed before probes open: until there are minStepsForSlowdown of them, for
// this time, or for this share of the trace. Without a step by firstStepSeconds, there are none.
const (
	firstStepSeconds  = 2.0
	stepTimingSeconds = 5.0
	stepTimingShare   = 0.05
)

// adjustMode applies the transitions of the state machine.
func (c *Controller) adjustMode(u timeUse) {
	switch {
	case !c.options.Heap && !c.options.Tensor:
	case !c.started:
		c.start()
	case c.mode == growth.HeapFull:
		c.checkFull()
	default:
		c.change(c.tensor.check(&c.budget, c.options.isAuto(), c.now))
		c.advanceBurst(u)
	}
}

// start opens the probes once the first steps have been timed.
func (c *Controller) start() {
	longest := stepTimingSeconds
	if c.options.Duration > 0 {
		longest = min(longest, stepTimingShare*c.options.Duration.Seconds())
	}
	n := len(c.steps.before.values)
	none := c.last.Steps <= 0 && n == 0
	if c.options.Steps && c.now < longest && n < minStepsForSlowdown &&
		!(none && c.now >= firstStepSeconds) {
		return
	}

	c.started, c.steps.checkAt = true, c.now+throttlePause
	c.enterFull()
	if !c.options.Producer { // no probe opens
		c.change(growth.OverheadChange{Reason: growth.OverheadStarted, Steps: n})
	}
}

// enterFull begins to probe every call, with at least half of the credit.
func (c *Controller) enterFull() {
	c.mode, c.burst = growth.HeapFull, burst{}
	c.budget.credit = max(c.budget.credit, creditSeconds*c.budget.rate()/2)
	c.fullAt = c.now
	c.tensor.alwaysOpen = false
}

// checkFull closes the probes when their credit is spent.
func (c *Controller) checkFull() {
	if c.options.isAuto() {
		c.change(c.fullInterval.tune(&c.budget, c.withRoom(finestInterval), c.fullAt, c.now))
	}
	if c.budget.credit >= 0 {
		return
	}

	recent := c.budget.recentUse(c.now - c.fullAt)
	if c.options.isAuto() && c.fullInterval.canSave(&c.budget, recent) {
		c.change(c.fullInterval.coarsen(growth.OverheadWalks, &c.budget, recent, c.now))
		c.budget.credit = creditSeconds * c.budget.rate() / 2
		return
	}
	if c.options.Producer {
		return
	}

	c.full.closed(c.now)
	c.open += c.now - c.fullAt
	c.tensor.alwaysOpen = c.options.hasHeapAndTensor() && tensorFits(recent, 1, c.budget.rate())
	c.tensor.from = c.now
	c.steps.resetRecent()

	c.forecast = costForecast{}
	c.forecast.add(recent, max(recent.elapsed, 0.01))
	if c.options.isAuto() {
		c.burstInterval = c.fullInterval.bytes
	}
	c.tuneBurstInterval(recent)

	c.scheduleNext(burst{phase: burstDetaching})
	c.reduce(c.plan(), recent)
}

// reduce enters mode bursts, or off where no burst fits.
func (c *Controller) reduce(p burstPlan, recent timeUse) {
	to, reason := growth.HeapBursts, growth.OverheadExpensive
	if !p.fits {
		to, reason = growth.HeapOff, growth.OverheadNoBurst
	}
	if c.mode == to {
		return
	}

	c.mode = to
	c.changeForCost(growth.OverheadChange{
		Reason: reason, Length: p.length, Spacing: p.spacing,
	}, recent)
}

// A backoff counts calm bursts until probes may stay open. The number needed doubles whenever they
// had to be closed soon (exponential backoff).
type backoff struct {
	calm, needed int     // bursts
	openedAt     float64 // s
}

const (
	minCalmBursts   = 3
	maxCalmBursts   = 96
	backoffSeconds  = 600 // closed before that is closed soon
	calmBudgetShare = 0.6 // a calm burst takes less than this share of the budget
)

func newBackoff() backoff { return backoff{needed: minCalmBursts, openedAt: -backoffSeconds} }

// observe counts a burst, and reports whether the probes may stay open.
func (b *backoff) observe(calm bool) bool {
	b.calm++
	if !calm {
		b.calm = 0
	}
	return b.calm >= b.needed
}

// opened notes that the probes stay open from now on.
func (b *backoff) opened(now float64) { b.calm, b.openedAt = 0, now }

// closed notes that they had to be closed.
func (b *backoff) closed(now float64) {
	b.calm = 0
	if now-b.openedAt < backoffSeconds {
		b.needed = min(maxCalmBursts, 2*b.needed)
	} else {
		b.needed = minCalmBursts
	}
}
