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

// interval returns the sampling interval in force, in bytes.
func (c *Controller) interval() uint64 {
	if c.started && c.mode != growth.HeapFull {
		return c.burstInterval
	}
	return c.fullInterval.bytes
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

// tuneBurstInterval chooses the interval of the next burst by the cost of the last one.
func (c *Controller) tuneBurstInterval(u timeUse) {
	traps := u.probes - u.walking
	if !c.options.isAuto() || traps <= 0 {
		return
	}

	finest := c.withRoom(finestBurstInterval)
	allowed := c.budget.rate() / dutyCycle(c.now) * u.elapsed
	longest := max(burstWalkRatio*traps, burstWalkShare*(allowed-traps))

	walking, newStacks := u.walking, u.newStacks
	mostNew := newStacksPerSecond / dutyCycle(c.now) * u.elapsed
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

// A fullInterval is the sampling interval of mode full: the finest one that the budget pays for. A
// change costs no accuracy, since each sample keeps the interval with which it was taken.
type fullInterval struct {
	fullTuning
	bytes     uint64
	changedAt float64 // s
	// From refineFrom on it may become finer: refinePause after it has become coarser.
	refineFrom, refinePause float64
}

// tune chooses the interval, in bytes and not below finest. Mode full began at fullAt.
func (i *fullInterval) tune(b *budget, finest uint64, fullAt, now float64,
) (why growth.OverheadChange) {
	since, pause := now-max(fullAt, i.changedAt), tuneSeconds
	if i.changedAt < fullAt {
		pause = firstTuneSeconds
	}
	if since < pause {
		return why
	}

	u := b.spent.sum(min(since, i.memorySeconds))
	allowed := b.rate() * u.elapsed
	switch {
	case i.bytes < finest:
		i.set(2*i.bytes, now)
	case i.bytes < i.coarsest && u.walking > i.maxShare*allowed:
		return i.coarsen(growth.OverheadWalks, b, u, now)
	case i.bytes < i.coarsest && b.ownExceeds():
		return i.coarsen(growth.OverheadNewStacks, b, u, now)
	case i.bytes > finest && u.walking < i.minShare*allowed && now >= i.refineFrom && !b.ownExceeds():
		return i.refine(finest, u, i.minShare*allowed, now)
	}
	return why
}

// canSave reports whether a coarser interval saves enough, because the traps alone cost little.
func (i *fullInterval) canSave(b *budget, u timeUse) bool {
	return i.bytes < i.coarsest && u.probes-u.walking <= (1-i.maxShare)*b.rate()*u.elapsed
}

// coarsen doubles the interval until walks fit, but at least once. An interval up to the usual one
// is not reported.
func (i *fullInterval) coarsen(reason growth.OverheadReason, b *budget, u timeUse, now float64,
) (why growth.OverheadChange) {
	interval, walking := 2*i.bytes, u.walking/2
	for interval < i.coarsest && walking > i.maxShare*b.rate()*u.elapsed {
		interval *= 2
		walking /= 2
	}

	i.set(interval, now)
	i.refinePause = min(max(i.minRefineSeconds, 2*i.refinePause), i.maxRefineSeconds)
	i.refineFrom = now + i.refinePause
	if interval > defaultInterval {
		why = i.change(reason, u)
	}
	return why
}

// refine makes the interval as fine as the walks may take that long, in seconds.
func (i *fullInterval) refine(finest uint64, u timeUse, longest, now float64,
) (why growth.OverheadChange) {
	interval, walking := i.bytes, u.walking
	for i.bytes < maxRefinement*interval && interval > finest && walking <= longest {
		interval /= 2
		walking *= 2
	}

	wasCoarse := i.bytes > defaultInterval
	i.set(interval, now)
	if wasCoarse {
		why = i.change(growth.OverheadFewWalks, u)
	}
	return why
}

func (i *fullInterval) set(bytes uint64, now float64) { i.bytes, i.changedAt = bytes, now }

// change is a change of an interval that is, or was, coarser than usual.
func (i *fullInterval) change(reason growth.OverheadReason, u timeUse) growth.OverheadChange {
	return growth.OverheadChange{
		Reason: reason, Share: u.walking / max(u.elapsed, 1e-9), Interval: i.bytes,
	}
}
