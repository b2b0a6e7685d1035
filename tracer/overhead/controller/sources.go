package controller

import "github.com/allocscope/allocscope/growth"

// tensor has the state of source tensor beside source heap. Its probes stay open between bursts
// while they take no more than half of the budget. Otherwise they open with the heap's probes.
type tensor struct {
	alwaysOpen bool
	from       float64 // when that began, or when its interval was changed
	interval   uint64
	backoff
}

const (
	tensorBudgetShare  = 0.5
	tensorCheckSeconds = 10 // the time over which the share is measured
)

// tensorFits reports whether the traps of tensor probes would take at most this part of their share
// of the budget's rate. One of three tensor calls may have its return probed. Their stack walks are
// not counted apart from the heap's: if they take too much, check sees it later.
func tensorFits(u timeUse, part, rate float64) bool {
	return u.tensorTrap <= part*(tensorBudgetShare*rate*u.elapsed)
}

// finishBurst opens the tensor probes for all of the time after enough bursts in which they fit.
func (t *tensor) finishBurst(u timeUse, rate, now float64) (why growth.OverheadChange) {
	if !t.alwaysOpen && t.observe(tensorFits(u, calmBudgetShare, rate)) {
		t.alwaysOpen, t.from = true, now
		t.opened(now)
		why.Reason = growth.OverheadFewTensors
	}
	return why
}

// check makes the interval of tensors coarser, or closes their probes between bursts, where they
// take too much.
func (t *tensor) check(b *budget, isAuto bool, now float64) (why growth.OverheadChange) {
	if !t.alwaysOpen {
		return why
	}

	// The last minute may have allowed more than the time of the check.
	recent := b.spent.sum(min(tensorCheckSeconds, now-t.from))
	rate := min(b.rate(), recent.allowed/max(recent.elapsed, slotSeconds))
	if recent.idle <= tensorBudgetShare*rate*tensorCheckSeconds {
		return why
	}

	t.from = now
	if isAuto && t.interval < coarsestInterval && 2*recent.walking > recent.probes {
		t.interval *= 2
		return why
	}
	t.alwaysOpen = false
	t.closed(now)
	return growth.OverheadChange{
		Reason: growth.OverheadManyTensors,
		Share:  recent.idle / max(recent.elapsed, 1e-9),
		Calls:  recent.tensors / max(recent.elapsed, 1e-3),
	}
}

// blocks has the state of GPU blocks of PyTorch's caching allocator. Each block is probed when it
// is handed out and when it comes back. A block that comes back unseen would count as live for ever.
// So probes close for good where they take too much, unless the allocator's own list of its blocks
// can be read: it shows which ones have come back. Then the probes are open in bursts.
//
// The first interval is coarse: to walk the stacks of a trainer's large blocks may take more than
// all else. Within seconds it becomes finer where that takes little.
type blocks struct {
	isOpen   bool
	interval uint64  // bytes
	recent   timeUse // since the last check
	excess   timeUse // for as long as blocks have taken too much
	// From refineFrom on the interval may become finer: refinePause after it has become coarser.
	refineFrom, refinePause float64

	inBursts    bool
	length      float64 // of a burst, s
	pausedUntil float64 // s, between two bursts; 0: the probes are open, or closed for good
	calm        backoff // until the probes stay open again
	// asks whether the list can be read; from askFrom on again, askPause after the last time.
	asks              bool
	askFrom, askPause float64
}

const (
	blockLimitShare = 0.75 // of the limit, which blocks may take alone
	// Where they take more in blockCheckSeconds, walks are left blockWalkShare of that.
	blockCheckSeconds = 1
	blockWalkShare    = 1.0 / 3
	// Blocks take too much while they do so on average over blockMemorySeconds.
	blockMemorySeconds = 10
	// blockExcessSeconds is the time for which blocks may take all of the limit before their probes
	// close: the allowance of a minute. A storm that is over by then changes nothing.
	blockExcessSeconds = 60
	// FirstBlockInterval and coarsestBlockInterval are in bytes: a leak of blocks is soon larger.
	FirstBlockInterval    = 128 << 20
	coarsestBlockInterval = 256 << 20
	blockIntervalFactor   = 4 // by which it becomes finer at once
)

// check changes the interval of blocks, or closes their probes where they take too much. isListed:
// the allocator's list can be read.
func (b *blocks) check(
	u timeUse, isListed bool, o *Options, spent *spent, now float64,
) (why growth.OverheadChange) {
	b.asks = false
	if !b.isOpen {
		b.isOpen = b.pausedUntil != 0 && now >= b.pausedUntil
		return why
	}
	b.pausedUntil = 0
	b.recent.add(u)
	if b.recent.elapsed < blockCheckSeconds || b.inBursts && b.recent.elapsed < b.length {
		return why
	}

	isExceeding := !b.inBursts && b.isTooMuch(b.recent, o)
	if isExceeding && !isListed && now >= b.askFrom {
		b.ask(now)
		return why
	}
	recent := b.recent
	b.recent = timeUse{}
	switch {
	case b.inBursts:
		return b.endBurst(recent, o, now)
	case isExceeding && isListed:
		return b.beginBursts(recent, o, now)
	}
	return b.checkOpen(recent, o, spent, now)
}

// checkOpen is check for probes that are always open.
func (b *blocks) checkOpen(
	recent timeUse, o *Options, spent *spent, now float64,
) (why growth.OverheadChange) {
	memory := spent.sum(blockMemorySeconds)
	b.excess.add(recent)
	if memory.blocks <= blockLimitShare*o.Limit*memory.elapsed {
		b.excess = timeUse{}
	}

	if b.excess.blocks > blockExcessSeconds*o.Limit {
		b.isOpen = false
		return growth.OverheadChange{
			Reason: growth.OverheadManyBlocks,
			Share:  recent.blocks / max(recent.elapsed, 1e-9),
			Calls:  recent.blockEvents / max(recent.elapsed, 1e-3),
		}
	}
	if o.isAuto() {
		why = b.tune(recent, blockLimitShare*o.Limit*recent.elapsed, now)
	}
	return why
}

// tune chooses the interval by the use since the last check, which was allowed so many seconds.
func (b *blocks) tune(u timeUse, allowed, now float64) (why growth.OverheadChange) {
	finer := u.blocks + (blockIntervalFactor-1)*u.blockWalks
	switch {
	case u.blocks > allowed && u.blockWalks > blockWalkShare*allowed &&
		b.interval < coarsestBlockInterval:
		return b.coarsen(u, now)
	case u.blockEvents > 0 && finer <= allowed/2 && now >= b.refineFrom:
		b.interval = max(b.interval/blockIntervalFactor, defaultInterval)
	}
	return why
}

// coarsen goes back to the first interval, and from there to the coarsest one. Steps between them
// would take longer: blocks that are larger than the interval are all sampled.
func (b *blocks) coarsen(u timeUse, now float64) (why growth.OverheadChange) {
	if b.interval < FirstBlockInterval {
		b.interval, b.refinePause = FirstBlockInterval, 2*b.refinePause
	} else {
		b.interval = coarsestBlockInterval
		why.Reason, why.Interval = growth.OverheadBlockWalks, b.interval
		why.Share = u.blocks / max(u.elapsed, 1e-9)
	}
	b.refinePause = min(max(b.refinePause, probeTuning.minRefineSeconds), probeTuning.maxRefineSeconds)
	b.refineFrom = now + b.refinePause
	return why
}
