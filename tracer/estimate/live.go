package estimate

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/stack"
	"github.com/cilium/ebpf"
)

// sum is what one stack holds and has allocated, before it gets its name.
type StackTotals struct {
	inuseObjects, allocObjects, allocBytes float64
	inuseBytes, samples                    int64
	variance                               float64
	births                                 []growth.Birth
	evidence                               *burstEvidence // nil: nothing of it was seen in windows
}

// bins are the ends of stretches of time, ns, CLOCK_MONOTONIC; the last of them is now.
type BirthBins []uint64

// of gives the bin of a moment; false: it is after the last.
func (b BirthBins) Index(moment uint64) (bin int, ok bool) {
	bin, _ = slices.BinarySearch(b, moment)
	return bin, bin < len(b)
}

// ReadLive sums the live map, and that of tensors, by stack, and gives their objects by process, in no particular order.
// What counts only after the last bin is left out: it belongs to what follows. The objects are valid until the next call.
func ReadLive(k *kernel.Kernel, books *Estimator, sums map[stack.Key]*StackTotals, born BirthBins, last LiveObjects) (LiveObjects, error) {
	objects := last.emptied()
	add := func(key *bpf.Address, a *bpf.Allocation) {
		r := books.estimate(key, a)
		bin, ok := born.Index(r.countedFrom)
		if !ok {
			return
		}
		TotalsOf(sums, stack.Key{key.Tgid, a.Stack}).AddLive(a.Size, r, bin)
		objects[key.Tgid] = append(objects[key.Tgid], LiveObject{key.Address, a.Size, a.Stack, r.Weight * r.Alive})
	}
	for _, m := range []*ebpf.Map{k.Live, k.Tensors} {
		if err := kernel.ReadMap(m, add); err != nil {
			return nil, fmt.Errorf("read map %v: %w", m, err)
		}
	}
	for from, sum := range sums {
		if h := books.hazards[from]; h != nil && sum.evidence != nil {
			sum.evidence.hazard = *h
		}
	}
	return objects, nil
}

// An object is a sampled allocation that is alive.
type LiveObject struct {
	Address, Size, Stack uint64
	Weight               float64 // objects that it stands for
}

// LiveObjects are those of each process. What they lie in is used again for the next snapshot.
type LiveObjects map[uint32][]LiveObject

// emptied has room for as many objects as there were of each process, and none for those that had none.
func (o LiveObjects) emptied() LiveObjects {
	empty := make(LiveObjects, len(o))
	for tgid, objects := range o {
		if len(objects) > 0 {
			empty[tgid] = objects[:0]
		}
	}
	return empty
}

// addLive adds what a sampled allocation stands for: w bytes, with variance w(w - size), of which a share is alive.
func (s *StackTotals) AddLive(size uint64, r Estimate, bin int) {
	whole := math.Round(r.Weight * float64(size))
	bytes := math.Round(whole * r.Alive)
	variance := r.Alive * r.Alive * whole * max(0, whole-float64(size))
	s.inuseObjects += r.Weight * r.Alive
	s.inuseBytes += int64(bytes)
	s.variance += variance
	s.samples++
	if r.Burst >= 0 {
		if s.evidence == nil {
			s.evidence = &burstEvidence{}
		}
		s.evidence.add(size, r, bytes, variance)
	}
	at := slices.IndexFunc(s.births, func(b growth.Birth) bool { return b.Bin == bin })
	if at < 0 {
		at = len(s.births)
		s.births = append(s.births, growth.Birth{Bin: bin})
	}
	s.births[at].InuseBytes += bytes
	s.births[at].Variance += variance
}

// TakeTallies moves the kernel's tallies into sums by stack.
func TakeTallies(tallies *ebpf.Map, to func(*bpf.TallyKey) *StackTotals, factor func(*bpf.TallyKey) float64) error {
	keys, values := make([]bpf.TallyKey, kernel.BatchEntries), make([]bpf.Tally, kernel.BatchEntries)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := tallies.BatchLookupAndDelete(&cursor, keys, values, nil)
		for i := range n {
			to(&keys[i]).AddTally(&keys[i], &values[i], factor(&keys[i]))
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("fold tallies: %w", err)
		}
	}
}

func (s *StackTotals) AddAllocated(other *StackTotals) {
	s.allocObjects += other.allocObjects
	s.allocBytes += other.allocBytes
}

func (s *StackTotals) AddTally(key *bpf.TallyKey, t *bpf.Tally, factor float64) {
	if t.Objects == 0 {
		return
	}
	weight := factor * growth.Weight(t.Bytes/t.Objects, uint64(key.Interval))
	s.allocObjects += weight * float64(t.Objects)
	s.allocBytes += weight * float64(t.Bytes)
}

func TotalsOf[K comparable](sums map[K]*StackTotals, key K) *StackTotals {
	to, ok := sums[key]
	if !ok {
		to = &StackTotals{}
		sums[key] = to
	}
	return to
}

// A pin is memory of the host that is pinned.
type Pin struct {
	pages.Span
	Stack uint64
}
