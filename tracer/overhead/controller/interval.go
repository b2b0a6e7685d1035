package controller

import "github.com/allocscope/allocscope/growth"

// The sampling intervals that the controller chooses, in bytes: powers of two.
const (
	defaultInterval    = 512 << 10
	coarsestInterval   = 4 << 20
	firstBurstInterval = 64 << 10
	finestInterval     = 4 << 10
)

// The bounds of what stack walks take. Above the larger one the interval doubles, below the
// smaller one it halves. In mode full they are shares of the budget, in a burst multiples of what
// the traps take.
const (
	maxFullWalkShare, minFullWalkShare   = 1.0 / 3, 1.0 / 24
	maxBurstWalkRatio, minBurstWalkRatio = 1.0 / 4, 1.0 / 10

	tuneSeconds   = 10
	refineSeconds = 600 // the least time before a finer interval
)

// isAuto reports whether the controller chooses the intervals.
func (c *Controller) isAuto() bool { return c.options.Interval == 0 }

// interval returns the sampling interval in force, in bytes.
func (c *Controller) interval() uint64 {
	if c.started && c.mode != Full {
		return c.burstInterval
	}
	return c.fullInterval
}

// tuneFullInterval chooses the interval of mode full.
func (c *Controller) tuneFullInterval() {
	if !c.isAuto() || c.now-max(c.fullAt, c.fullIntervalAt) < tuneSeconds {
		return
	}

	u := c.budget.spent.sum(tuneSeconds)
	allowed := c.budget.rate() * u.elapsed
	switch {
	case u.walking > maxFullWalkShare*allowed && c.fullInterval < coarsestInterval:
		c.setFullInterval(2 * c.fullInterval)
		c.changeForWalks(growth.OverheadWalks, u)
	case u.walking < minFullWalkShare*allowed && c.fullInterval > defaultInterval &&
		c.now-c.fullIntervalAt >= refineSeconds:
		c.setFullInterval(c.fullInterval / 2)
		c.changeForWalks(growth.OverheadFewWalks, u)
	}
}

// coarsen takes the largest interval instead of closing the probes, where stack walks are what
// costs too much. It reports whether it did.
func (c *Controller) coarsen() bool {
	u := c.recentUse()
	isTraps := u.probes-u.walking > (1-maxFullWalkShare)*c.budget.rate()*u.elapsed
	if !c.isAuto() || c.fullInterval >= coarsestInterval || isTraps {
		return false
	}

	c.setFullInterval(coarsestInterval)
	c.budget.credit = creditSeconds * c.budget.rate() / 2
	c.changeForWalks(growth.OverheadWalks, u)
	return true
}

func (c *Controller) setFullInterval(bytes uint64) {
	c.fullInterval, c.fullIntervalAt = bytes, c.now
}

func (c *Controller) changeForWalks(reason growth.OverheadReason, u cpuUse) {
	c.change(growth.OverheadChange{
		Reason: reason, CPUShare: u.walking / max(u.work, 1e-9), Interval: c.fullInterval,
	})
}

// tuneBurstInterval chooses the interval of the next burst by what the last one took.
func (c *Controller) tuneBurstInterval(u cpuUse) {
	traps := u.probes - u.walking
	if !c.isAuto() || traps <= 0 {
		return
	}

	walking := u.walking
	for walking > maxBurstWalkRatio*traps && c.burstInterval < defaultInterval {
		c.burstInterval *= 2
		walking /= 2
	}
	for walking < minBurstWalkRatio*traps && c.burstInterval > finestInterval {
		c.burstInterval /= 2
		walking *= 2
	}
}
