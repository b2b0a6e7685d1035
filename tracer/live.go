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
		weight := growth.Weight(a.Size, a.Interval)
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
	err := readMap(s.kernel.Maps[bpf.KernelMapTallies], func(key *bpf.KernelTallyKey, t *bpf.KernelTally) {
		if t.Objects == 0 {
			return
		}
		to := sumOf(sums, key.Stack)
		weight := growth.Weight(t.Bytes/t.Objects, key.Interval)
		to.allocObjects += weight * float64(t.Objects)
		to.allocBytes += weight * float64(t.Bytes)
	})
	if err != nil {
		return fmt.Errorf("read tallies: %w", err)
	}
	return nil
}

func sumOf(sums map[uint64]*sum, stack uint64) *sum {
	to, ok := sums[stack]
	if !ok {
		to = &sum{}
		sums[stack] = to
	}
	return to
}
