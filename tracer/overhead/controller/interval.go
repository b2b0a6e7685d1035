package controller

import (
	"math/bits"

	"github.com/allocscope/allocscope/growth"
)

// The sampling intervals that the controller chooses, in bytes: powers of two. A burst meets few
// objects of a leak among many others, so that it takes more of them.
const (
	defaultInterval     = 512 << 10
	coarsestInterval    = 4 << 20
	firstBurstInterval  = 64 << 10
	finestInterval      = 4 << 10
	finestBurstInterval = 512
)

// In a burst walks may take burstWalkRatio times the traps' time, or burstWalkShare of the rest of
// the budget, if that is more; below minBurstWalkShare of it, the interval shrinks.
const (
	burstWalkRatio, burstWalkShare = 1.0 / 4, 1.0 / 2
	minBurstWalkShare              = 0.4
)

// A fullTuning bounds the interval of mode full, by shares of the budget that stack walks take.
type fullTuning struct {
	coarsest uint64 // bytes
	// The interval grows above maxShare, and shrinks below minShare.
	maxShare, minShare float64
	// After the interval had to become coarser it stays so for minRefineSeconds, and each further
	// time for twice as long, up to maxRefineSeconds (exponential backoff).
	minRefineSeconds, maxRefineSeconds float64
	// memorySeconds of the past decide.
	memorySeconds float64
}

var (
	probeTuning = fullTuning{coarsestInterval, 1.0 / 3, 1.0 / 8, 60, 600, 10}
	// producerTuning keeps samples at a sixth of the budget: by the clock a trainer loses about
	// twice the counted time. A producer soon learns to take fewer of them.
	producerTuning = fullTuning{1 << 30, 1.0 / 6, 1.0 / 14, 2, 60, 3}
)

// In mode full the interval is tuned every tuneSeconds. Each time it becomes finer by maxRefinement at
// most.
const (
	firstTuneSeconds = 0.25
	tuneSeconds      = 1.0
	maxRefinement    = 16
)

const (
	// ownMemory is over how many seconds allocscope's own time is judged.
	ownMemory = 10.0
	// usualOwnShare is the share of a core that allocscope takes at any sampling interval.
	usualOwnShare = 0.02
	// newStackCost is the CPU time of naming a stack, in seconds.
	newStackCost = 100e-6
	// newStacksPerSecond bounds the new stacks that bursts may meet, on average over all of the time. A
	// name takes up to 10 KiB: these are 60 MiB in five minutes.
	newStacksPerSecond = 20
)

// liveStep is the part of the live map for whose every filling the finest interval doubles. So the
// map is never full: it holds the samples of a terabyte.
const liveStep = 1.0 / 16

// firstLiveShare is the part of the live map whose filling doubles the finest interval of a
// producer, and so does each doubling of it: every free of the program pays for the live samples.
const firstLiveShare = 1.0 / 1024

// isAuto reports whether the controller chooses the intervals.
func (c *Controller) isAuto() bool { return c.options.Interval == 0 }

// interval returns the sampling interval in force, in bytes.
func (c *Controller) interval() uint64 {
	if c.started && c.mode != growth.HeapFull {
		return c.burstInterval
	}
	return c.fullInterval
}

// tuneFullInterval chooses the interval of mode full: the finest one that the budget pays for. A
// change costs no accuracy, since each sample keeps the interval with which it was taken.
func (c *Controller) tuneFullInterval() {
	since, pause := c.now-max(c.fullAt, c.fullIntervalAt), tuneSeconds
	if c.fullIntervalAt < c.fullAt {
		pause = firstTuneSeconds
	}
	if !c.isAuto() || since < pause {
		return
	}

	u := c.budget.spent.sum(min(since, c.tuning.memorySeconds))
	allowed, finest := c.budget.rate()*u.elapsed, c.withRoom(finestInterval)
	switch {
	case c.fullInterval < finest:
		c.setFullInterval(2 * c.fullInterval)
	case c.fullInterval < c.tuning.coarsest && u.walking > c.tuning.maxShare*allowed:
		c.coarsen(growth.OverheadWalks, u)
	case c.fullInterval < c.tuning.coarsest && c.ownExceeds():
		c.coarsen(growth.OverheadNewStacks, u)
	case c.fullInterval > finest && u.walking < c.tuning.minShare*allowed &&
		c.now >= c.refineFrom && !c.ownExceeds():
		c.refine(finest, u, c.tuning.minShare*allowed)
	}
}

// coarsen doubles the interval until walks fit, but at least once.
func (c *Controller) coarsen(reason growth.OverheadReason, u timeUse) {
	interval, walking := 2*c.fullInterval, u.walking/2
	for interval < c.tuning.coarsest && walking > c.tuning.maxShare*c.budget.rate()*u.elapsed {
		interval *= 2
		walking /= 2
	}

	c.setFullInterval(interval)
	c.refinePause = min(max(c.tuning.minRefineSeconds, 2*c.refinePause), c.tuning.maxRefineSeconds)
	c.refineFrom = c.now + c.refinePause
	c.changeForWalks(reason, u)
}

// refine makes the interval as fine as the walks may take that long, in seconds.
func (c *Controller) refine(finest uint64, u timeUse, longest float64) {
	interval, walking := c.fullInterval, u.walking
	for c.fullInterval < maxRefinement*interval && interval > finest && walking <= longest {
		interval /= 2
		walking *= 2
	}

	wasCoarse := c.fullInterval > defaultInterval
	c.setFullInterval(interval)
	if wasCoarse {
		c.changeForWalks(growth.OverheadFewWalks, u)
	}
}

// withRoom returns the interval, or the finest one for which the live map has room, in bytes.
func (c *Controller) withRoom(interval uint64) uint64 {
	steps := 0
	if share := min(c.last.LiveShare, 1); share > 0 { // else it may be no number
		steps = int(share / liveStep)
		if c.options.Producer {
			steps = bits.Len64(uint64(share / firstLiveShare))
		}
	}
	return interval << min(steps, bits.Len64(coarsestInterval/interval)-1)
}

// ownExceeds reports whether allocscope itself took more than it may, and new stacks can be the
// reason. A coarser interval meets fewer of them.
func (c *Controller) ownExceeds() bool {
	u := c.budget.spent.sum(ownMemory)
	return u.elapsed >= ownMemory/2 && newStackCost*u.newStacks > u.own/2 &&
		u.own > max(c.options.Limit*u.native, usualOwnShare*u.elapsed)
}

// coarsenInstead coarsens the interval instead of closing the probes, where stack walks cost too
// much. It reports whether it did.
func (c *Controller) coarsenInstead() bool {
	u := c.recentUse()
	isTraps := u.probes-u.walking > (1-c.tuning.maxShare)*c.budget.rate()*u.elapsed
	if !c.isAuto() || c.fullInterval >= c.tuning.coarsest || isTraps {
		return false
	}

	c.coarsen(growth.OverheadWalks, u)
	c.budget.credit = creditSeconds * c.budget.rate() / 2
	return true
}

func (c *Controller) setFullInterval(bytes uint64) {
	c.fullInterval, c.fullIntervalAt = bytes, c.now
}

// changeForWalks notes a change of an interval that is, or was, coarser than usual.
func (c *Controller) changeForWalks(reason growth.OverheadReason, u timeUse) {
	if reason != growth.OverheadFewWalks && c.fullInterval <= defaultInterval {
		return
	}
	c.change(growth.OverheadChange{
		Reason: reason, Share: u.walking / max(u.elapsed, 1e-9), Interval: c.fullInterval,
	})
}

// tuneBurstInterval chooses the interval of the next burst by the cost of the last one.
func (c *Controller) tuneBurstInterval(u timeUse) {
	traps := u.probes - u.walking
	if !c.isAuto() || traps <= 0 {
		return
	}

	finest := c.withRoom(finestBurstInterval)
	allowed := c.budget.rate() / c.dutyCycle() * u.elapsed
	longest := max(burstWalkRatio*traps, burstWalkShare*(allowed-traps))

	walking, newStacks := u.walking, u.newStacks
	mostNew := newStacksPerSecond / c.dutyCycle() * u.elapsed
	for (walking > longest || newStacks > mostNew) && c.burstInterval < defaultInterval {
		c.burstInterval *= 2
		walking /= 2
		newStacks /= 2
	}
	for walking < minBurstWalkShare*longest && newStacks < minBurstWalkShare*mostNew &&
		c.burstInterval > finest {
		c.burstInterval /= 2
		walking *= 2
		newStacks *= 2
	}
	c.burstInterval = max(c.burstInterval, finest)
}
