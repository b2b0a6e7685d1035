package tree

import (
	"math"
	"time"

	"github.com/allocscope/allocscope/tracer/overhead/duty"
)

const (
	// maxRoundCost bounds the cost of one round, except that one read is always made.
	maxRoundCost = 20 * time.Millisecond

	// The cost of a read before any was measured, from benchmarks with a margin.
	defaultReadCost   = 100 * time.Microsecond
	defaultCostPerGiB = 5 * time.Millisecond
)

// An account accumulates CPU time for the next read of one process. A read takes place once credit
// covers its cost: the estimated cost for the first read, the last measured cost for the others.
type account struct {
	credit, cost time.Duration
	measured     bool
}

// A rollupBudget divides the CPU time for smaps_rollup among processes in proportion to the square
// root of the cost of one read. For a given total, that minimizes the mean interval between reads:
// if process i gets the share wᵢ of the CPU time, its interval is cᵢ/wᵢ, and Σcᵢ/wᵢ under Σwᵢ = 1
// is least for wᵢ ∝ √cᵢ. Large processes are read rarely and small ones often; none starves.
type rollupBudget struct {
	limit duty.Account // of the reads of all processes

	// Sums over all reads: the cost of a byte on this machine.
	readCost  time.Duration
	readBytes float64
}

// estimateCost sets the expected cost of a process that was never read, from its resident bytes.
func (b *rollupBudget) estimateCost(a *account, resident int64) {
	if a.measured {
		return
	}
	const priorBytes = 1 << 30 // the weight of defaultCostPerGiB
	costPerByte := float64(defaultCostPerGiB+b.readCost) / (priorBytes + b.readBytes)
	a.cost = defaultReadCost + time.Duration(costPerByte*float64(max(0, resident)))
}

// share divides the CPU time that has accrued since the last call. The first process can be read at
// once, so that there is a value when tracing starts.
func (b *rollupBudget) share(accounts []*account, elapsed time.Duration) {
	accrued := float64(b.limit.Accrue(time.Time{}.Add(elapsed)))

	var sum float64
	for _, a := range accounts {
		sum += a.weight()
	}
	for _, a := range accounts {
		a.credit += time.Duration(accrued * a.weight() / sum)
	}

	if b.readCost == 0 && len(accounts) > 0 {
		accounts[0].credit = accounts[0].cost
	}
}

func (a *account) weight() float64 { return math.Sqrt(float64(a.cost)) }

// readDue reads the processes whose credit covers the cost. read returns the measured cost.
func (b *rollupBudget) readDue(accounts []*account, read func(i int) (cost time.Duration)) {
	var spent time.Duration
	for i, a := range accounts {
		if a.credit < a.cost {
			continue
		}
		if spent >= maxRoundCost {
			return // the rest comes first in the next round: these have no credit then
		}

		a.cost, a.measured = max(read(i), time.Microsecond), true // clocks may be coarse
		a.credit = 0                                              // a surplus is not kept
		spent += a.cost
	}
}

// learn records the cost of a read of resident bytes.
func (b *rollupBudget) learn(resident int64, cost time.Duration) {
	b.readBytes += float64(max(0, resident))
	b.readCost += cost
}
