package tracer

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
)

// sum is what one stack holds and has allocated, before it gets its name.
type sum struct {
	inuseObjects, allocObjects, allocBytes float64
	inuseBytes, samples                    int64
	variance                               float64
	births                                 []growth.Birth
	seen                                   *sightings // nil: nothing of it was seen in windows
}

// origin is a stack of a process.
type origin struct {
	tgid  uint32
	stack uint64
}

// bins are the ends of stretches of time, ns, CLOCK_MONOTONIC; the last of them is now.
type bins []uint64

// of gives the bin of a moment; false: it is after the last.
func (b bins) of(moment uint64) (bin int, ok bool) {
	bin, _ = slices.BinarySearch(b, moment)
	return bin, bin < len(b)
}

// readLive sums the live map, and that of tensors, by stack, and gives their objects by process, in no particular order.
// What counts only after the last bin is left out: it belongs to what follows. The objects are valid until the next call.
func readLive(k *kernel, books *books, sums map[origin]*sum, born bins, last liveObjects) (liveObjects, error) {
	objects := last.emptied()
	add := func(key *bpf.KernelAddress, a *bpf.KernelAllocation) {
		r := books.of(key, a)
		bin, ok := born.of(r.entered)
		if !ok {
			return
		}
		sumOf(sums, origin{key.Tgid, a.Stack}).addLive(a.Size, r, bin)
		objects[key.Tgid] = append(objects[key.Tgid], object{key.Address, a.Size, a.Stack, r.weight * r.share})
	}
	for _, name := range []string{bpf.KernelMapLive, bpf.KernelMapTensors} {
		if err := readMap(k.Maps[name], add); err != nil {
			return nil, fmt.Errorf("read map %s: %w", name, err)
		}
	}
	for from, sum := range sums {
		if h := books.hazards[from]; h != nil && sum.seen != nil {
			sum.seen.hazard = *h
		}
	}
	return objects, nil
}

// An object is a sampled allocation that is alive.
type object struct {
	address, size, stack uint64
	weight               float64 // objects that it stands for
}

// liveObjects are those of each process. What they lie in is used again for the next snapshot.
type liveObjects map[uint32][]object

// emptied has room for as many objects as there were of each process, and none for those that had none.
func (o liveObjects) emptied() liveObjects {
	empty := make(liveObjects, len(o))
	for tgid, objects := range o {
		if len(objects) > 0 {
			empty[tgid] = objects[:0]
		}
	}
	return empty
}

// addLive adds what a sampled allocation stands for: w bytes, with variance w(w - size), of which a share is alive.
func (s *sum) addLive(size uint64, r record, bin int) {
	whole := math.Round(r.weight * float64(size))
	bytes := math.Round(whole * r.share)
	variance := r.share * r.share * whole * max(0, whole-float64(size))
	s.inuseObjects += r.weight * r.share
	s.inuseBytes += int64(bytes)
	s.variance += variance
	s.samples++
	if r.window >= 0 {
		if s.seen == nil {
			s.seen = &sightings{}
		}
		s.seen.add(size, r, bytes, variance)
	}
	at := slices.IndexFunc(s.births, func(b growth.Birth) bool { return b.Bin == bin })
	if at < 0 {
		at = len(s.births)
		s.births = append(s.births, growth.Birth{Bin: bin})
	}
	s.births[at].InuseBytes += bytes
	s.births[at].Variance += variance
}

// takeTallies moves the kernel's tallies into sums by stack.
func takeTallies(tallies *ebpf.Map, to func(*bpf.KernelTallyKey) *sum, factor func(*bpf.KernelTallyKey) float64) error {
	keys, values := make([]bpf.KernelTallyKey, batch), make([]bpf.KernelTally, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := tallies.BatchLookupAndDelete(&cursor, keys, values, nil)
		for i := range n {
			to(&keys[i]).addTally(&keys[i], &values[i], factor(&keys[i]))
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("fold tallies: %w", err)
		}
	}
}

func (s *sum) addAllocated(other *sum) {
	s.allocObjects += other.allocObjects
	s.allocBytes += other.allocBytes
}

func (s *sum) addTally(key *bpf.KernelTallyKey, t *bpf.KernelTally, factor float64) {
	if t.Objects == 0 {
		return
	}
	weight := factor * growth.Weight(t.Bytes/t.Objects, uint64(key.Interval))
	s.allocObjects += weight * float64(t.Objects)
	s.allocBytes += weight * float64(t.Bytes)
}

func sumOf[K comparable](sums map[K]*sum, key K) *sum {
	to, ok := sums[key]
	if !ok {
		to = &sum{}
		sums[key] = to
	}
	return to
}
