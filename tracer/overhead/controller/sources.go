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
// is handed out and when it comes back. The events cannot be probed in bursts: a block that comes
// back unseen would count as live for ever. Closed probes therefore stay closed.
//
// The first interval is coarse: to walk the stacks of a trainer's large blocks may take more than
// all else. It becomes finer while that takes little.
type blocks struct {
	isOpen   bool
	interval uint64
	finest   uint64  // interval, in bytes
	recent   timeUse // in this check
	excess   timeUse // in the checks before it, as long as each of them took too much
}

const (
	blockLimitShare   = 0.75 // of the limit, which blocks may take alone
	blockCheckSeconds = 10   // the time over which the share is measured
	// blockExcessSeconds is the time for which blocks may take all of the limit before their probes
	// close: the allowance of a minute. A storm that is over by then changes nothing.
	blockExcessSeconds = 60
	// FirstBlockInterval and coarsestBlockInterval are in bytes: a leak of blocks is soon larger.
	FirstBlockInterval    = 32 << 20
	coarsestBlockInterval = 64 << 20
	blockIntervalFactor   = 4
)

// check makes the interval of blocks coarser, or closes their probes, where they take too much.
func (b *blocks) check(u timeUse, o *Options) (why growth.OverheadChange) {
	if !b.isOpen {
		return why
	}
	b.recent.add(u)
	if b.recent.elapsed < blockCheckSeconds {
		return why
	}

	recent := b.recent
	b.recent = timeUse{}
	if allowed := blockLimitShare * o.Limit * recent.elapsed; recent.blocks <= allowed {
		b.excess = timeUse{}
		finer := recent.blocks + (blockIntervalFactor-1)*recent.blockWalks
		if o.isAuto() && finer <= allowed/2 {
			b.interval = min(b.interval, max(b.interval/blockIntervalFactor, b.finest))
		}
		return why
	}

	b.excess.add(recent)
	share := recent.blocks / max(recent.elapsed, 1e-9)
	switch {
	case o.isAuto() && b.interval < coarsestBlockInterval && recent.blockWalks > recent.blocks/3:
		b.excess = timeUse{}
		b.interval = min(blockIntervalFactor*b.interval, coarsestBlockInterval)
		b.finest = b.interval
		why.Reason, why.Share, why.Interval = growth.OverheadBlockWalks, share, b.interval
	case b.excess.blocks*b.excess.elapsed > blockExcessSeconds*o.Limit*b.excess.elapsed:
		b.isOpen = false
		why.Reason, why.Share = growth.OverheadManyBlocks, share
		why.Calls = recent.blockEvents / max(recent.elapsed, 1e-3)
	}
	return why
}
