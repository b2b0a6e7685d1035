// Package estimate estimates the contents of a heap from sampled allocations. An allocation
// represents others in two ways:
//
//   - The kernel side samples one allocation per sampling interval, on average. growth.Weight is
//     the inverse of the probability that it sampled this one (Horvitz-Thompson). Where the process
//     samples its heap itself, it says the bytes that each sample represents.
//   - The probes may be open in bursts alone (duty-cycled sampling). A burst then also represents
//     the pause before it (Schedule.Extrapolation). Objects that were born in it may have been
//     freed unseen since (growth.Survival).
//
// Schedule records when the probes were open. Estimator combines it with the state of single
// objects from package liveness. ReadLive applies it to the kernel's live map and sums by stack,
// and Holdings has the sums by stack and kind of memory.
package estimate

import (
	"math"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/stack"
)

// Estimator returns the estimates of one snapshot. It reads the Schedule and the Tracker that it
// was made of: the lock that guards them is held until ReadLive has returned.
type Estimator struct {
	schedule     *Schedule
	tracker      *liveness.Tracker
	tensorsAlone bool              // source tensor is sampled in bursts, and source heap is off
	now          uint64            // ns, CLOCK_MONOTONIC
	tracedSince  map[uint32]uint64 // when tracing of each process started, in ns, by PID
	bins         BirthBins         // in which births count

	// burstIndex has, for each probe period, its index among the bursts that objects count of by
	// now; -1: it is not one of them. burstSeconds[i] is the time that such a burst represents.
	burstIndex   []int
	burstSeconds []float64
	survival     map[stack.Key]*growth.Survival // cache of survivalOf
	totals       burstTotals                    // of the objects that ReadLive has added
}

// NewEstimator returns an estimator for a snapshot at a moment, in ns, CLOCK_MONOTONIC.
// tracedSince is when tracing of each process started, by PID; 0: from the first period on.
func NewEstimator(
	schedule *Schedule, tracker *liveness.Tracker, tensorsAlone bool,
	now uint64, tracedSince map[uint32]uint64, bins BirthBins,
) *Estimator {
	e := &Estimator{
		schedule:     schedule,
		tracker:      tracker,
		tensorsAlone: tensorsAlone,
		now:          now,
		tracedSince:  tracedSince,
		bins:         bins,
		survival:     make(map[stack.Key]*growth.Survival),
		totals:       schedule.newBurstTotals(now),
	}

	for i, p := range schedule.Periods {
		index := -1
		if p.Burst && schedule.countedFrom(i, p.From) <= now {
			index = len(e.burstSeconds)
			length := time.Duration(max(p.To, p.From) - p.From)
			represented := schedule.Extrapolation(i, 0) * length.Seconds()
			e.burstSeconds = append(e.burstSeconds, represented)
		}
		e.burstIndex = append(e.burstIndex, index)
	}
	return e
}

// Estimate has the number of objects and bytes that one sampled object represents.
type Estimate struct {
	// Weight is the number of objects.
	Weight float64
	// Alive is the probability that an object is still alive, and aliveError its standard error.
	Alive, aliveError float64
	// Burst is the index of the burst in which it was born; -1: it was born in none.
	Burst int

	pausesPerBurst float64 // Schedule.pausesPerBurst of the burst

	countedFrom uint64                 // ns, CLOCK_MONOTONIC
	tracked     liveness.TrackedObject // zero: it is not tracked
	sizeClass   uint64                 // see heap.Allocator
}

// estimate returns how many objects a sampled one represents, and the probability that it is still
// alive. Tensors are treated like heap objects when the heap source is off.
func (e *Estimator) estimate(key *bpf.Address, a *bpf.Allocation) Estimate {
	estimate := Estimate{
		Weight:      weightOf(a),
		Alive:       1,
		Burst:       -1,
		countedFrom: a.Born,
	}
	if a.Weight != 0 || !IsSampledInBursts(a.Kind, e.tensorsAlone) {
		return estimate
	}
	period := e.schedule.index(a.Born)
	if period < 0 || !e.schedule.Periods[period].Burst {
		return estimate
	}
	tracked := e.tracker.Objects[*key]
	if tracked.Mapped { // MappedObjects has the objects of the pauses
		return estimate
	}

	estimate.Burst = e.burstIndex[period]
	estimate.countedFrom = e.schedule.countedFrom(period, a.Born)
	if estimate.Burst < 0 {
		return estimate
	}
	estimate.pausesPerBurst = e.schedule.pausesPerBurst(period, e.tracedSince[key.Tgid])
	slowdown, slowdownError := e.schedule.slowdown()
	estimate.Weight *= 1 + slowdown*estimate.pausesPerBurst

	age := time.Duration(e.now - min(a.Born, e.now))
	survival := e.survivalOf(stack.Key{TGID: key.Tgid, ID: a.Stack})
	estimate.Alive, estimate.aliveError = survival.At(age)
	estimate.aliveError = math.Hypot(estimate.aliveError, estimate.Alive*slowdownError)

	estimate.tracked = tracked
	estimate.sizeClass = e.tracker.SizeClass(key.Tgid, a.Size)
	return estimate
}

// weightOf returns the number of objects that a sampled one represents.
func weightOf(a *bpf.Allocation) float64 {
	if a.Weight != 0 {
		return float64(a.Weight) / float64(max(a.Size, 1))
	}
	return growth.Weight(a.Size, uint64(a.Interval))
}

// IsSampledInBursts reports whether the probes of a kind of objects may be open in bursts alone.
func IsSampledInBursts(kind bpf.AllocationKind, tensorsAlone bool) bool {
	return kind == bpf.KindHeap || kind == bpf.KindTensor && tensorsAlone
}

// survivalOf returns the survival function of the objects of a stack.
func (e *Estimator) survivalOf(key stack.Key) *growth.Survival {
	if s := e.survival[key]; s != nil {
		return s
	}

	rate := e.tracker.HazardRates[key]
	if rate == nil {
		rate = &growth.HazardRate{}
	}
	s := rate.Survival()
	e.survival[key] = s
	return s
}
