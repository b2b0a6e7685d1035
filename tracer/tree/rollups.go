package tree

import (
	"math"
	"time"
)

// What may go into smaps_rollup, for all processes together.
const (
	rollupShare = 0.004 // of a core: less than the half percent that is promised
	// rollupRound bounds one round, except that one reading is always made: what costs more waits for the next.
	rollupRound = 20 * time.Millisecond
	// What a reading is expected to cost before any was made: measured, with room.
	rollupBase   = 100 * time.Microsecond
	rollupPerGiB = 5 * time.Millisecond
)

// An account saves for the next reading of one process. A reading is paid for in advance: the first by what it is expected
// to cost, the others by what the one before has cost.
type account struct {
	credit, cost time.Duration
	read         bool // cost was measured
}

// A rollupBudget shares the processor time for smaps_rollup among processes. Each gets a part in proportion to the square
// root of what a reading of it costs. For a given sum that makes the mean of all waiting times least: large processes are
// read rarely and small ones often, and none waits for ever.
type rollupBudget struct {
	last  time.Duration // of the last share
	begun bool
	// All that has been read: what a byte costs on this machine.
	spent time.Duration
	bytes float64
}

// expect sets what a reading of a process will cost that was never read, by its resident bytes.
func (b *rollupBudget) expect(a *account, resident int64) {
	if a.read {
		return
	}
	const prior = 1 << 30 // bytes
	price := float64(rollupPerGiB+b.spent) / (prior + b.bytes)
	a.cost = rollupBase + time.Duration(price*float64(max(0, resident)))
}

// share pays out what has come together since the last call. The first of all can be read at once, so that there is a
// reading at the start of a trace.
func (b *rollupBudget) share(accounts []*account, elapsed time.Duration) {
	income := rollupShare * float64(elapsed-b.last)
	b.last = elapsed
	var sum float64
	for _, a := range accounts {
		sum += weight(a)
	}
	for _, a := range accounts {
		a.credit += time.Duration(income * weight(a) / sum)
	}
	if !b.begun && len(accounts) > 0 {
		b.begun = true
		accounts[0].credit = accounts[0].cost
	}
}

func weight(a *account) float64 { return math.Sqrt(float64(a.cost)) }

// round reads those that have saved enough. Read gives what it has cost.
func (b *rollupBudget) round(accounts []*account, read func(i int) (cost time.Duration)) {
	var spent time.Duration
	for i, a := range accounts {
		if a.credit < a.cost {
			continue
		}
		if spent >= rollupRound {
			return // the rest can wait: those that were read now will not be in their way
		}
		a.cost, a.read = max(read(i), time.Microsecond), true // clocks may be coarse
		a.credit = 0                                          // what was too much is not saved
		spent += a.cost
	}
}

// learn notes what a reading of resident bytes has cost.
func (b *rollupBudget) learn(resident int64, cost time.Duration) {
	b.bytes += float64(max(0, resident))
	b.spent += cost
}
