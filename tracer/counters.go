package tracer

import (
	"slices"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/stack"
)

// Events counts what was seen since the attach.
type Events struct {
	// Allocations are calls that ask the allocator for memory; calls it makes itself to serve them are not counted.
	Allocations uint64
	// Frees are calls of free with a pointer; FreesUntracked those of memory older than the attach or never sampled.
	Frees, FreesUntracked uint64
	// Samples were taken into the live map; Failed would have been but got no memory.
	Samples, Failed uint64
	// Stacks were taken, of which the losses say how many were cut.
	Stacks uint64
	// MappingCalls are mmap, munmap, mremap, brk and madvise.
	MappingCalls uint64
}

// Total number of events.
func (e Events) Total() uint64 { return e.Allocations + e.Frees + e.MappingCalls }

// A Loss is something that was not measured.
type Loss struct {
	Reason string
	Count  uint64
}

// What each loss means for the result, in the order in which they are reported.
var lossReasons = []struct {
	counter bpf.Counter
	reason  string
}{
	{bpf.DropLiveFull, "allocations not followed: the live map was full (raise --max-live or --interval)"},
	{bpf.DropFaultsFull, "page faults not followed: there were too many pages (raise --interval)"},
	{bpf.DropTallyFull, "allocations missing from alloc_objects and alloc_space: the tally was full"},
	{bpf.DropEvents, "notices lost: the ring buffer was full (mappings were reconciled with /proc; stacks among them are not known)"},
	{bpf.DropThreadState, "events lost: the kernel had no memory for a thread's state"},
	{bpf.DropNoMemory, "entries of alloc_objects and alloc_space not kept: the kernel had no memory at that moment"},
	{bpf.DropOutPointer, "results of allocations that could not be read"},
	{bpf.DropMissedReturn, "allocations whose return was not seen"},
	{bpf.DropMissedFree, "addresses handed out again whose free was not seen"},
	{bpf.DropGpuFull, "allocations on GPUs not followed: there were too many (raise --interval)"},
}

// Counters reads what was seen and what was lost. Losses that did not occur are left out.
func (s *Session) Counters() (Events, []Loss, error) {
	values, err := kernel.ReadCounters(s.kernel.Counters)
	if err != nil {
		return Events{}, nil, err
	}
	values[bpf.DropLiveFull] += s.probing.lost()
	if s.probing.hadBursts() { // what is freed between them is found out later
		values[bpf.DropMissedFree] = 0
	}
	var losses []Loss
	for _, l := range lossReasons {
		if n := values[l.counter]; n > 0 {
			losses = append(losses, Loss{Reason: l.reason, Count: n})
		}
	}
	stacks, cut, err := s.stackCounters()
	if err != nil {
		return Events{}, nil, err
	}
	losses = append(append(losses, cut...), s.lost()...)
	return Events{
		Allocations:    values[bpf.CountAllocations],
		Frees:          values[bpf.CountFrees],
		FreesUntracked: values[bpf.CountFreesUntracked],
		Samples:        values[bpf.CountSamples],
		Failed:         values[bpf.CountFailed],
		MappingCalls:   values[bpf.CountMappingCalls],
		Stacks:         stacks,
	}, losses, nil
}

// losses of targets that are not counted in the kernel.
type losses struct{ stacks, mappings uint64 }

// add adds those of a target.
func (l *losses) add(t *target) {
	l.stacks += t.stacks.Lost()
	l.mappings += uint64(t.unwinder.Space.Dropped())
}

// lost tells what user space had no room for.
func (s *Session) lost() []Loss {
	sum := s.retired
	for _, t := range s.targets.list() {
		sum.add(t)
	}
	all := []Loss{
		{Reason: "lookups of stacks that are not known: they were not told, or there were too many different ones", Count: sum.stacks},
		{Reason: "files through which stacks cannot be followed: too many unwind tables", Count: uint64(s.tables.Stats().Dropped)},
		{Reason: "mappings through which stacks cannot be followed: there are too many", Count: sum.mappings},
		{Reason: "processes of the tree that are not followed: there are too many, or they cannot be read", Count: uint64(s.follower.LeftOut())},
	}
	return slices.DeleteFunc(all, func(l Loss) bool { return l.Count == 0 })
}

// stackCounters reads how many stacks were taken, and why some were cut.
func (s *Session) stackCounters() (total uint64, cut []Loss, err error) {
	ends, err := kernel.ReadCounters(s.kernel.StackEnds)
	if err != nil {
		return 0, nil, err
	}
	pythons, err := kernel.ReadCounters(s.kernel.PythonErrors)
	if err != nil {
		return 0, nil, err
	}
	for end, n := range ends {
		total += n
		if reason := stack.EndReasons[bpf.StackEnd(end)]; reason != "" && n > 0 {
			cut = append(cut, Loss{Reason: "stacks cut: " + reason, Count: n})
		}
	}
	for e, n := range pythons {
		if reason := stack.PythonErrors[bpf.PythonError(e)]; reason != "" && n > 0 {
			cut = append(cut, Loss{Reason: "stacks without some Python frames: " + reason, Count: n})
		}
	}
	return total, cut, nil
}
