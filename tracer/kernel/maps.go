package kernel

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
)

const (
	// BatchEntries is the number of map entries that one system call reads.
	BatchEntries = 4096
	// firstEntries is the number that the first one reads: most maps are nearly empty.
	firstEntries = 128
)

// ReadMap calls each for every entry of a hash map, in batches. Entries that the kernel adds or
// deletes meanwhile may be missed.
func ReadMap[K, V any](m *ebpf.Map, each func(*K, *V)) error {
	return readBatches(m.BatchLookup, each)
}

// TakeAll calls each for every entry of a hash map and deletes it, in batches. An entry that the
// kernel adds meanwhile may stay.
func TakeAll[K, V any](m *ebpf.Map, each func(*K, *V)) error {
	return readBatches(m.BatchLookupAndDelete, each)
}

func readBatches[K, V any](
	read func(cursor *ebpf.MapBatchCursor, keys, values any, o *ebpf.BatchOptions) (int, error),
	each func(*K, *V),
) error {
	keys, values := make([]K, firstEntries), make([]V, firstEntries)
	var cursor ebpf.MapBatchCursor

	for {
		n, err := read(&cursor, keys, values, nil)
		for i := range n {
			each(&keys[i], &values[i])
		}

		if errors.Is(err, ebpf.ErrKeyNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(keys) < BatchEntries {
			keys, values = make([]K, BatchEntries), make([]V, BatchEntries)
		}
	}
}

// DeleteWhere deletes the entries of a hash map that match.
func DeleteWhere[K, V any](m *ebpf.Map, matches func(*K, *V) bool) error {
	var keys []K
	err := ReadMap(m, func(key *K, value *V) {
		if matches(key, value) {
			keys = append(keys, *key)
		}
	})

	DeleteKeys(m, keys)
	return err
}

// DeleteKeys deletes entries of a hash map, some of which the kernel may have deleted before.
func DeleteKeys[K any](m *ebpf.Map, keys []K) { deleteKeys(m, keys, func(K) {}) }

// deleteKeys is DeleteKeys, and calls deleted for each key that was there. The kernel ends a batch at
// the first that is not, and the next batch goes on behind it.
func deleteKeys[K any](m *ebpf.Map, keys []K, deleted func(K)) {
	for len(keys) > 0 {
		n, err := m.BatchDelete(keys, nil)
		if err == nil {
			n = len(keys)
		}
		for _, key := range keys[:n] {
			deleted(key)
		}
		keys = keys[min(n+1, len(keys)):]
	}
}

// ReadCounters returns the sums over all CPUs of an array of counters. It is one system call: the
// counters are read ten times a second.
func ReadCounters(m *ebpf.Map) ([]uint64, error) {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}

	sums := make([]uint64, m.MaxEntries())
	keys, values := make([]uint32, len(sums)), make([]uint64, len(sums)*cpus)
	var cursor ebpf.MapBatchCursor
	n, err := m.BatchLookup(&cursor, keys, values, nil)
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) || n < len(sums) {
		return nil, fmt.Errorf("read %d of %d counters: %w", n, len(sums), err)
	}

	for i, v := range values {
		sums[keys[i/cpus]] += v
	}
	return sums, nil
}

// ResetCounters sets all counters to zero. Counts of programs that run meanwhile may remain.
func (k *Kernel) ResetCounters() error {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return fmt.Errorf("count CPUs: %w", err)
	}

	counters, zeros := k.Counters, make([]uint64, cpus)
	for i := range counters.MaxEntries() {
		if err := counters.Put(i, zeros); err != nil {
			return fmt.Errorf("reset counters: %w", err)
		}
	}
	return nil
}

// SetTarget sets the actions of the BPF programs on events of a process.
func (k *Kernel) SetTarget(pid int, state bpf.TargetState) error {
	if err := k.Targets.Put(uint32(pid), state); err != nil {
		return fmt.Errorf("set target: %w", err)
	}
	return nil
}

// SetTraced makes the BPF programs trace a process, or ignore it. Neither need be a change.
func (k *Kernel) SetTraced(pid int, traced bool) error {
	if traced {
		return k.SetTarget(pid, bpf.TargetTraced)
	}

	if err := k.Targets.Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove target: %w", err)
	}
	return nil
}
