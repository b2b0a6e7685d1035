package addrspace

import (
	"cmp"
	"slices"
	"sync"

	"github.com/allocscope/allocscope/bpf"
)

// A Journal keeps calls by process until they are applied. The zero value is empty. Its methods may
// be called concurrently.
type Journal struct {
	mu    sync.Mutex
	calls map[uint32][]bpf.Event // by PID
	lost  uint64
}

// MaxCalls bounds the calls of a process that are kept: 14 MiB. Mappings beyond come from
// /proc/PID/maps, without stacks. A test makes it smaller.
var MaxCalls = 1 << 17

// Add adds a call. Calls may come in any order.
func (j *Journal) Add(call bpf.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()

	if j.calls == nil {
		j.calls = make(map[uint32][]bpf.Event)
	}
	if len(j.calls[call.Tgid]) >= MaxCalls {
		j.lost++
		return
	}
	j.calls[call.Tgid] = append(j.calls[call.Tgid], call)
}

// IsHalfFull reports whether so many calls of a process are kept that they should be taken soon.
func (j *Journal) IsHalfFull(pid uint32) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.calls[pid]) >= MaxCalls/2
}

// Lost returns how many calls could not be kept.
func (j *Journal) Lost() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.lost
}

// Take removes and returns the calls of a process up to a moment, ordered by time. Of later calls
// some may still be missing, so that their order is not known yet.
func (j *Journal) Take(pid uint32, until uint64) []bpf.Event {
	j.mu.Lock()
	defer j.mu.Unlock()

	calls := j.calls[pid]
	slices.SortStableFunc(calls, func(a, b bpf.Event) int { return cmp.Compare(a.Time, b.Time) })
	later, _ := slices.BinarySearchFunc(calls, until+1, func(call bpf.Event, time uint64) int {
		return cmp.Compare(call.Time, time)
	})

	delete(j.calls, pid)
	if later < len(calls) {
		j.calls[pid] = slices.Clone(calls[later:])
	}
	return calls[:later]
}

// Forget deletes the calls of a process.
func (j *Journal) Forget(pid uint32) {
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.calls, pid)
}
