package controller

import (
	"math"

	"github.com/allocscope/allocscope/growth"
)

const (
	// A burst lasts for burstSteps steps of training, between these seconds: temporaries of a step
	// then come back within it.
	burstSteps                   = 4
	minBlockBurst, maxBlockBurst = blockCheckSeconds, 10
	// Bursts take this share of the time at least, and at most.
	minBlockDuty, maxBlockDuty = 1. / 30, 1. / 2
	// blockTotalsShare of the time between bursts has the probes open for the allocator's totals.
	blockTotalsShare = 0.02
	// firstAskPause and longestAskPause are in seconds: to look for the list in vain takes some 30 ms.
	firstAskPause, longestAskPause = 1, 60
	// blockWalk is the cost of a sampled block in seconds, about.
	blockWalk = 10e-6
	// finestBlockInterval is the finest one in bursts, which see few blocks of a slow leak.
	finestBlockInterval = 32 << 10
)

// setLength sets the length of bursts, where so many steps have taken so many seconds.
func (b *blocks) setLength(steps int, now float64) {
	b.length = minBlockBurst
	if steps > 0 {
		b.length = min(max(burstSteps*now/float64(steps), minBlockBurst), maxBlockBurst)
	}
}

// isTooMuch reports whether the reports of blocks take more than they may, however few are
// sampled.
func (b *blocks) isTooMuch(u timeUse, o *Options) bool {
	allowed := blockLimitShare * o.Limit * u.elapsed
	isCoarsest := !o.isAuto() || b.interval >= coarsestBlockInterval
	return u.blocks-u.blockWalks > allowed || u.blocks > allowed && isCoarsest
}

// ask has the session look for the allocator's list before the next reading.
func (b *blocks) ask(now float64) {
	b.askPause = min(max(2*b.askPause, firstAskPause), longestAskPause)
	b.asks, b.askFrom = true, now+b.askPause
}

// beginBursts ends the time in which the probes were always open, as its last second was a burst.
func (b *blocks) beginBursts(u timeUse, o *Options, now float64) growth.OverheadChange {
	b.inBursts, b.excess = true, timeUse{}
	b.calm.closed(now)
	duty := b.pause(u, o, now)
	return growth.OverheadChange{
		Reason: growth.OverheadBlockBursts,
		Share:  u.blocks / max(u.elapsed, 1e-9),
		Calls:  u.blockEvents / max(u.elapsed, 1e-3),
		Length: u.elapsed, Spacing: u.elapsed / duty,
	}
}

// endBurst closes the probes until the next burst, or leaves them open after enough bursts in
// which they took no more than they may.
func (b *blocks) endBurst(u timeUse, o *Options, now float64) (why growth.OverheadChange) {
	if b.calm.observe(u.blocks <= blockLimitShare*o.Limit*u.elapsed) {
		b.inBursts = false
		if o.isAuto() {
			b.interval = max(b.interval, defaultInterval)
		}
		b.calm.opened(now)
		why.Reason = growth.OverheadFewBlocks
		return why
	}
	if o.isAuto() {
		b.tuneBursts(u)
	}
	b.pause(u, o, now)
	return why
}

// pause closes the probes for as long as a burst of this use has to pay for, and returns the share
// of the time that bursts then take. The heap's bursts have a share of the limit of their own.
func (b *blocks) pause(u timeUse, o *Options, now float64) (duty float64) {
	affordable := (1 - reservedShare) * o.Limit * u.elapsed / max(u.blocks, 1e-9)
	duty = min(max(affordable-blockTotalsShare, minBlockDuty), maxBlockDuty)
	b.isOpen, b.pausedUntil = false, now+u.elapsed*(1/duty-1)
	return duty
}

// tuneBursts chooses the interval for which walks take about as much as traps. With finer ones the
// bursts would be rarer, and see no more samples of a leak; with coarser ones they see fewer.
func (b *blocks) tuneBursts(u timeUse) {
	traps, walks := u.blocks-u.blockWalks, max(u.blockWalks, blockWalk)
	for walks > blockIntervalFactor*traps && b.interval < coarsestBlockInterval {
		walks /= blockIntervalFactor
		b.interval *= blockIntervalFactor
	}
	for blockIntervalFactor*walks <= traps && b.interval > finestBlockInterval {
		walks *= blockIntervalFactor
		b.interval /= blockIntervalFactor
	}
	b.interval = min(max(b.interval, finestBlockInterval), coarsestBlockInterval)
}

// wait returns the seconds until the next reading at most.
func (b *blocks) wait(now float64) float64 {
	switch {
	case b.asks:
		return 0
	case !b.isOpen && b.pausedUntil != 0:
		return b.pausedUntil - now
	case b.isOpen && b.inBursts:
		return b.length - b.recent.elapsed
	}
	return math.Inf(1)
}
