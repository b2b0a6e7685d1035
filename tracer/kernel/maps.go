package kernel

import (
	"errors"
	"fmt"

	"github.com/allocscope/allocscope/bpf"
	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// Monotonic is the time of CLOCK_MONOTONIC, in ns: the clock of the BPF programs.
func Monotonic() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0 // cannot happen: the clock always exists
	}
	return uint64(now.Nano())
}

const BatchEntries = 4096 // entries read from a map in one system call

// ReadMap calls each for every entry of a hash map, read in batches.
func ReadMap[K, V any](m *ebpf.Map, each func(*K, *V)) error {
	keys, values := make([]K, BatchEntries), make([]V, BatchEntries)
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

// DeleteKeys deletes entries of a hash map that may have gone meanwhile: the kernel stops at each that has.
func DeleteKeys[K any](m *ebpf.Map, keys []K) {
	for len(keys) > 0 {
		n, err := m.BatchDelete(keys, nil)
		if err == nil {
			return
		}
		keys = keys[min(n+1, len(keys)):]
	}
}

// ReadCounters reads an array of counters, each kept by CPU.
func ReadCounters(m *ebpf.Map) ([]uint64, error) {
	values := make([]uint64, m.MaxEntries())
	for i := range values {
		var perCPU []uint64
		if err := m.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("read counters: %w", err)
		}
		for _, v := range perCPU {
			values[i] += v
		}
	}
	return values, nil
}

// setTraced adds a process to those that count, or takes it out.
func (k *Kernel) SetTraced(pid int, traced bool) error {
	if traced {
		return k.SetTarget(pid, bpf.TargetTraced)
	}
	if err := k.Targets.Delete(uint32(pid)); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("remove target: %w", err)
	}
	return nil
}

// resetCounters sets them to zero, while nothing counts.
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
