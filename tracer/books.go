package tracer

import (
	"math"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
)

// The books of one snapshot tell what each sampled object of the heap that may be alive stands for. They need the session's watch.
type books struct {
	log          *watchLog
	known        map[bpf.KernelAddress]followed // objects that are followed from outside
	hazards      map[origin]*growth.Hazard
	tensorsAlone bool   // tensors are watched in spells, and the heap is not wanted
	now          uint64 // ns, CLOCK_MONOTONIC
	// windows are the places of spells among all windows whose objects count by now; -1: it is none. stand is for how many seconds
	// each of these does.
	windows []int
	stand   []float64
	joined  map[uint32]uint64 // when counting began in each target, in ns, by PID
	alive   map[origin]*growth.Survival
}

func openBooks(log *watchLog, v *survivors, tensorsAlone bool, now uint64, joined map[uint32]uint64) *books {
	b := &books{
		log: log, known: v.known, hazards: v.hazards, tensorsAlone: tensorsAlone,
		now: now, joined: joined, alive: make(map[origin]*growth.Survival),
	}
	for i, s := range log.spells {
		place := -1
		if s.window && log.entered(i, s.from) <= now {
			place = len(b.stand)
			b.stand = append(b.stand, log.factor(i, 0)*time.Duration(max(s.to, s.from)-s.from).Seconds())
		}
		b.windows = append(b.windows, place)
	}
	return b
}

// A record is what a sampled object stands for.
type record struct {
	// weight is the number of objects.
	weight float64
	// share of them that are alive, and its standard error.
	share, err float64
	// window of its birth, among all; -1: it was not born in one.
	window int
	// entered is when it counts from, in ns.
	entered  uint64
	followed followed // from outside
}

// of an object of the heap, or of a tensor, which is watched in windows where nobody watches the heap.
func (b *books) of(key *bpf.KernelAddress, a *bpf.KernelAllocation) record {
	r := record{weight: growth.Weight(a.Size, uint64(a.Interval)), share: 1, window: -1, entered: a.Born}
	spell := b.log.at(a.Born)
	if !hasSpells(a.Kind, b.tensorsAlone) {
		return r
	}
	if spell < 0 || !b.log.spells[spell].window {
		return r
	}
	r.window, r.entered = b.windows[spell], b.log.entered(spell, a.Born)
	if r.window >= 0 {
		r.weight *= b.log.factor(spell, b.joined[key.Tgid])
		r.share, r.err = b.survival(origin{key.Tgid, a.Stack}).At(time.Duration(b.now - min(a.Born, b.now)))
		_, slower := b.log.slower()
		r.err = math.Hypot(r.err, r.share*slower)
		r.followed = b.known[*key]
	}
	return r
}

// hasSpells tells whether objects of a kind are seen in the spells alone.
func hasSpells(kind bpf.KernelAllocationKind, tensorsAlone bool) bool {
	return kind == bpf.KernelAllocationKindKIND_HEAP || kind == bpf.KernelAllocationKindKIND_TENSOR && tensorsAlone
}

// survival of the objects of a stack.
func (b *books) survival(of origin) *growth.Survival {
	if known := b.alive[of]; known != nil {
		return known
	}
	h := b.hazards[of]
	if h == nil {
		h = &growth.Hazard{}
	}
	known := h.Survival()
	b.alive[of] = known
	return known
}
