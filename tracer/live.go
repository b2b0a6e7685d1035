package tracer

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
)

// sum is what one stack holds and has allocated, before it gets its name.
type sum struct {
	inuseObjects, allocObjects, allocBytes float64
	inuseBytes, samples                    int64
}

const batch = 4096 // entries read from a map in one system call

// readMap calls each for every entry of a hash map, read in batches.
func readMap[K, V any](m *ebpf.Map, each func(*K, *V)) error {
	keys, values := make([]K, batch), make([]V, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			each(&keys[i], &values[i])
		}
		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLive sums the live map by stack. Allocations born after the given moment are left out: they belong to what follows.
func (s *Session) readLive(sums map[uint64]*sum, until uint64) (objects int, err error) {
	err = readMap(s.kernel.Maps[bpf.KernelMapLive], func(_ *bpf.KernelAddress, a *bpf.KernelAllocation) {
		if a.Born > until {
			return
		}
		objects++
		to := sumOf(sums, a.Stack)
		weight := growth.Weight(a.Size, uint64(a.Interval))
		to.inuseObjects += weight
		to.inuseBytes += int64(math.Round(weight * float64(a.Size)))
		to.samples++
	})
	if err != nil {
		return 0, fmt.Errorf("read live map: %w", err)
	}
	return objects, nil
}

// readTallies sums by stack what has been allocated since the attach.
func (s *Session) readTallies(sums map[uint64]*sum) error {
	tallies := s.kernel.Maps[bpf.KernelMapTallies]
	entries := 0
	err := readMap(tallies, func(key *bpf.KernelTallyKey, t *bpf.KernelTally) {
		entries++
		sumOf(sums, key.Stack).addTally(key, t)
	})
	if err != nil {
		return fmt.Errorf("read tallies: %w", err)
	}
	for stack, folded := range s.folded {
		sumOf(sums, stack).addAllocated(folded)
	}
	if entries > int(tallies.MaxEntries()/2) {
		return s.foldTallies(tallies)
	}
	return nil
}

// foldTallies empties the kernel's tallies into user space before they are full. What is added to an entry in the moment
// of its removal is lost.
func (s *Session) foldTallies(tallies *ebpf.Map) error {
	taken := make(map[uint64]*sum)
	err := takeTallies(tallies, taken)
	s.notices.flush() // and with it every stack that the above may name
	for stack, sum := range taken {
		sumOf(s.folded, s.stacks.get(stack).ID).addAllocated(sum)
	}
	return err
}

// takeTallies moves the kernel's tallies into sums by stack.
func takeTallies(tallies *ebpf.Map, sums map[uint64]*sum) error {
	keys, values := make([]bpf.KernelTallyKey, batch), make([]bpf.KernelTally, batch)
	var cursor ebpf.MapBatchCursor
	for {
		n, err := tallies.BatchLookupAndDelete(&cursor, keys, values, nil)
		for i := range n {
			sumOf(sums, keys[i].Stack).addTally(&keys[i], &values[i])
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

func (s *sum) addTally(key *bpf.KernelTallyKey, t *bpf.KernelTally) {
	if t.Objects == 0 {
		return
	}
	weight := growth.Weight(t.Bytes/t.Objects, uint64(key.Interval))
	s.allocObjects += weight * float64(t.Objects)
	s.allocBytes += weight * float64(t.Bytes)
}

func sumOf(sums map[uint64]*sum, stack uint64) *sum {
	to, ok := sums[stack]
	if !ok {
		to = &sum{}
		sums[stack] = to
	}
	return to
}
