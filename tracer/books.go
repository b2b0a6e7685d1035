package tracer

import (
	"math"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
)

// The books of one snapshot tell what each sampled object of the heap that may be alive stands for. They need the session's watch.
type books struct {
	watch *watch
	now   uint64 // ns, CLOCK_MONOTONIC
	// windows are the places of spells among all windows whose objects count by now; -1: it is none. stand is for how many seconds
	// each of these does.
	windows []int
	stand   []float64
	joined  map[uint32]uint64 // when counting began in each target, in ns, by PID
	alive   map[origin]*growth.Survival
}

func (w *watch) open(now uint64, joined map[uint32]uint64) *books {
	b := &books{watch: w, now: now, joined: joined, alive: make(map[origin]*growth.Survival)}
	for i, s := range w.log.spells {
		place := -1
		if s.window && w.log.entered(i, s.from) <= now {
			place = len(b.stand)
			b.stand = append(b.stand, w.log.factor(i, 0)*time.Duration(max(s.to, s.from)-s.from).Seconds())
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
	spell := b.watch.log.at(a.Born)
	if !b.watch.hasSpells(a.Kind) {
		return r
	}
	if spell < 0 || !b.watch.log.spells[spell].window {
		return r
	}
	r.window, r.entered = b.windows[spell], b.watch.log.entered(spell, a.Born)
	if r.window >= 0 {
		r.weight *= b.watch.log.factor(spell, b.joined[key.Tgid])
		r.share, r.err = b.survival(origin{key.Tgid, a.Stack}).At(time.Duration(b.now - min(a.Born, b.now)))
		_, slower := b.watch.log.slower()
		r.err = math.Hypot(r.err, r.share*slower)
		r.followed = b.watch.survivors.known[*key]
	}
	return r
}

// hasSpells tells whether objects of a kind are seen in the spells alone.
func (w *watch) hasSpells(kind bpf.KernelAllocationKind) bool {
	return kind == bpf.KernelAllocationKindKIND_HEAP || kind == bpf.KernelAllocationKindKIND_TENSOR && w.tensorsAlone
}

// survival of the objects of a stack.
func (b *books) survival(of origin) *growth.Survival {
	if known := b.alive[of]; known != nil {
		return known
	}
	h := b.watch.survivors.hazards[of]
	if h == nil {
		h = &growth.Hazard{}
	}
	known := h.Survival()
	b.alive[of] = known
	return known
}
