package tracer

import (
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
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
	counter bpf.KernelCounter
	reason  string
}{
	{bpf.KernelCounterDROP_LIVE_FULL, "allocations not followed: the live map was full (raise --max-live or --interval)"},
	{bpf.KernelCounterDROP_FAULTS_FULL, "page faults not followed: there were too many pages (raise --interval)"},
	{bpf.KernelCounterDROP_TALLY_FULL, "allocations missing from alloc_objects and alloc_space: the tally was full"},
	{bpf.KernelCounterDROP_NOTICES, "notices lost: the ring buffer was full (mappings were reconciled with /proc; stacks among them are not known)"},
	{bpf.KernelCounterDROP_THREAD_STATE, "events lost: the kernel had no memory for a thread's state"},
	{bpf.KernelCounterDROP_NO_MEMORY, "entries of alloc_objects and alloc_space not kept: the kernel had no memory at that moment"},
	{bpf.KernelCounterDROP_OUT_POINTER, "results of allocations that could not be read"},
	{bpf.KernelCounterDROP_MISSED_RETURN, "allocations whose return was not seen"},
	{bpf.KernelCounterDROP_MISSED_FREE, "addresses handed out again whose free was not seen"},
	{bpf.KernelCounterDROP_DEVICE_FULL, "allocations on GPUs not followed: there were too many (raise --interval)"},
}

// Counters reads what was seen and what was lost. Losses that did not occur are left out.
func (s *Session) Counters() (Events, []Loss, error) {
	values, err := readCounters(s.kernel.Maps[bpf.KernelMapCounters])
	if err != nil {
		return Events{}, nil, err
	}
	values[bpf.KernelCounterDROP_LIVE_FULL] += s.watch.lost()
	if s.watch.hadWindows() { // what is freed between them is found out later
		values[bpf.KernelCounterDROP_MISSED_FREE] = 0
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
		Allocations:    values[bpf.KernelCounterCOUNT_ALLOCATIONS],
		Frees:          values[bpf.KernelCounterCOUNT_FREES],
		FreesUntracked: values[bpf.KernelCounterCOUNT_FREES_UNTRACKED],
		Samples:        values[bpf.KernelCounterCOUNT_SAMPLES],
		Failed:         values[bpf.KernelCounterCOUNT_FAILED],
		MappingCalls:   values[bpf.KernelCounterCOUNT_MAPPING_CALLS],
		Stacks:         stacks,
	}, losses, nil
}

// readEvents reads what has been counted of events that cost something.
func readEvents(k *kernel) (controller.Reading, error) {
	values, err := readCounters(k.Maps[bpf.KernelMapCounters])
	if err != nil {
		return controller.Reading{}, err
	}
	return controller.Reading{
		Entries:       values[bpf.KernelCounterCOUNT_ENTRIES],
		Stepped:       values[bpf.KernelCounterCOUNT_STEPPED],
		TensorEntries: values[bpf.KernelCounterCOUNT_TENSOR_ENTRIES],
		Returns:       values[bpf.KernelCounterCOUNT_RETURNS],
		MappingCalls:  values[bpf.KernelCounterCOUNT_MAPPING_CALLS],
		Samples:       values[bpf.KernelCounterCOUNT_SAMPLES],
		Walk:          time.Duration(values[bpf.KernelCounterCOUNT_WALK_NS]),
		KernelWalk:    time.Duration(values[bpf.KernelCounterCOUNT_KERNEL_WALK_NS]),
		DeviceCalls:   values[bpf.KernelCounterCOUNT_DEVICE_CALLS],
		Blocks:        values[bpf.KernelCounterCOUNT_BLOCKS],
		BlockTime:     time.Duration(values[bpf.KernelCounterCOUNT_BLOCK_NS]),
		BlockWalk:     time.Duration(values[bpf.KernelCounterCOUNT_BLOCK_WALK_NS]),
	}, nil
}

// losses of targets that are not counted in the kernel.
type losses struct{ stacks, mappings uint64 }

// add adds those of a target.
func (l *losses) add(t *target) {
	l.stacks += t.stacks.lost()
	l.mappings += uint64(t.unwinder.space.Missing())
}

// lost tells what user space had no room for.
func (s *Session) lost() []Loss {
	sum := s.retired
	for _, t := range s.list() {
		sum.add(t)
	}
	all := []Loss{
		{Reason: "lookups of stacks that are not known: they were not told, or there were too many different ones", Count: sum.stacks},
		{Reason: "files through which stacks cannot be followed: too many unwind tables", Count: uint64(s.tables.Stats().Full)},
		{Reason: "mappings through which stacks cannot be followed: there are too many", Count: sum.mappings},
		{Reason: "processes of the tree that are not followed: there are too many, or they cannot be read", Count: uint64(s.family.LeftOut())},
	}
	return slices.DeleteFunc(all, func(l Loss) bool { return l.Count == 0 })
}

// stackCounters reads how many stacks were taken, and why some were cut.
func (s *Session) stackCounters() (total uint64, cut []Loss, err error) {
	ends, err := readCounters(s.kernel.Maps[bpf.KernelMapStackEnds])
	if err != nil {
		return 0, nil, err
	}
	pythons, err := readCounters(s.kernel.Maps[bpf.KernelMapPythonErrors])
	if err != nil {
		return 0, nil, err
	}
	for end, n := range ends {
		total += n
		if reason := endReasons[bpf.KernelStackEnd(end)]; reason != "" && n > 0 {
			cut = append(cut, Loss{Reason: "stacks cut: " + reason, Count: n})
		}
	}
	for e, n := range pythons {
		if reason := pythonReasons[bpf.KernelPythonError(e)]; reason != "" && n > 0 {
			cut = append(cut, Loss{Reason: "stacks without some Python frames: " + reason, Count: n})
		}
	}
	return total, cut, nil
}

// readCounters reads an array of counters, each kept by CPU.
func readCounters(m *ebpf.Map) ([]uint64, error) {
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
