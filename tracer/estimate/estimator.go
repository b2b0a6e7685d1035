package estimate

import (
	"math"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/stack"
)

// The books of one snapshot tell what each sampled object of the heap that may be alive stands for. They need the session's watch.
type Estimator struct {
	log          *Schedule
	known        map[bpf.Address]liveness.Tracked // objects that are followed from outside
	hazards      map[stack.Key]*growth.HazardRate
	tensorsAlone bool   // tensors are watched in spells, and the heap is not wanted
	now          uint64 // ns, CLOCK_MONOTONIC
	// windows are the places of spells among all windows whose objects count by now; -1: it is none. stand is for how many seconds
	// each of these does.
	burstIndex   []int
	burstSeconds []float64
	tracedSince  map[uint32]uint64 // when counting began in each target, in ns, by PID
	alive        map[stack.Key]*growth.Survival
}

func NewEstimator(log *Schedule, v *liveness.Tracker, tensorsAlone bool, now uint64, joined map[uint32]uint64) *Estimator {
	b := &Estimator{
		log: log, known: v.Objects, hazards: v.HazardRates, tensorsAlone: tensorsAlone,
		now: now, tracedSince: joined, alive: make(map[stack.Key]*growth.Survival),
	}
	for i, s := range log.Periods {
		place := -1
		if s.Burst && log.countedFrom(i, s.From) <= now {
			place = len(b.burstSeconds)
			b.burstSeconds = append(b.burstSeconds, log.Extrapolation(i, 0)*time.Duration(max(s.To, s.From)-s.From).Seconds())
		}
		b.burstIndex = append(b.burstIndex, place)
	}
	return b
}

// A record is what a sampled object stands for.
type Estimate struct {
	// weight is the number of objects.
	Weight float64
	// share of them that are alive, and its standard error.
	Alive, aliveError float64
	// window of its birth, among all; -1: it was not born in one.
	Burst int
	// entered is when it counts from, in ns.
	countedFrom uint64
	tracked     liveness.Tracked // from outside
}

// of an object of the heap, or of a tensor, which is watched in windows where nobody watches the heap.
func (b *Estimator) estimate(key *bpf.Address, a *bpf.Allocation) Estimate {
	r := Estimate{Weight: growth.Weight(a.Size, uint64(a.Interval)), Alive: 1, Burst: -1, countedFrom: a.Born}
	spell := b.log.index(a.Born)
	if !IsSampledInBursts(a.Kind, b.tensorsAlone) {
		return r
	}
	if spell < 0 || !b.log.Periods[spell].Burst {
		return r
	}
	r.Burst, r.countedFrom = b.burstIndex[spell], b.log.countedFrom(spell, a.Born)
	if r.Burst >= 0 {
		r.Weight *= b.log.Extrapolation(spell, b.tracedSince[key.Tgid])
		r.Alive, r.aliveError = b.survival(stack.Key{key.Tgid, a.Stack}).At(time.Duration(b.now - min(a.Born, b.now)))
		_, slower := b.log.slowdown()
		r.aliveError = math.Hypot(r.aliveError, r.Alive*slower)
		r.tracked = b.known[*key]
	}
	return r
}

// IsSampledInBursts tells whether objects of a kind are seen in the spells alone.
func IsSampledInBursts(kind bpf.AllocationKind, tensorsAlone bool) bool {
	return kind == bpf.KindHeap || kind == bpf.KindTensor && tensorsAlone
}

// survival of the objects of a stack.
func (b *Estimator) survival(of stack.Key) *growth.Survival {
	if known := b.alive[of]; known != nil {
		return known
	}
	h := b.hazards[of]
	if h == nil {
		h = &growth.HazardRate{}
	}
	known := h.Survival()
	b.alive[of] = known
	return known
}
