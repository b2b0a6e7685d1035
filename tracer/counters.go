package tracer

import (
	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/stack"
)

// Events counts what was seen since tracing started.
type Events struct {
	// Allocations are calls that ask the allocator for memory, without those that the allocator
	// makes itself to serve them.
	Allocations uint64
	// Frees are calls of free with a pointer. FreesUntracked are those of memory that was allocated
	// before tracing started, or was not sampled.
	Frees, FreesUntracked uint64
	// Samples were put into the live map. Failed would have been, but the allocator returned null.
	Samples, Failed uint64
	// Stacks were walked. The losses count those that were truncated.
	Stacks uint64
	// StacksShortened lack their middle, of which FramesLeftOut is the sum.
	StacksShortened, FramesLeftOut uint64
	// MappingCalls are mmap, munmap, mremap and madvise.
	MappingCalls uint64
}

// Total returns the number of calls.
func (e Events) Total() uint64 { return e.Allocations + e.Frees + e.MappingCalls }

// lossCounters are the kinds that the BPF programs count.
var lossCounters = []struct {
	kind    growth.LossKind
	counter bpf.Counter
}{
	{growth.LossLiveFull, bpf.DropLiveFull},
	{growth.LossFaultsFull, bpf.DropFaultsFull},
	{growth.LossTallyFull, bpf.DropTallyFull},
	{growth.LossEvents, bpf.DropEvents},
	{growth.LossThreadState, bpf.DropThreadState},
	{growth.LossNoMemory, bpf.DropNoMemory},
	{growth.LossOutPointer, bpf.DropOutPointer},
	{growth.LossMissedReturn, bpf.DropMissedReturn},
	{growth.LossMissedFree, bpf.DropMissedFree},
	{growth.LossGPUFull, bpf.DropGpuFull},
	{growth.LossMappingStacks, bpf.DropMappingWalks},
	{growth.LossSiteStacks, bpf.CountSiteStacks},
}

// lossList collects the losses that have occurred.
type lossList []growth.Loss

// add adds a loss with its cause, which may be empty.
func (l *lossList) add(kind growth.LossKind, cause string, count uint64) {
	if count > 0 {
		*l = append(*l, growth.Loss{Kind: kind, Cause: cause, Count: count})
	}
}

// Counters reads what was seen and what was lost. It returns only losses that have occurred.
func (s *Session) Counters() (Events, []growth.Loss, error) {
	values, err := kernel.ReadCounters(s.kernel.Counters)
	if err != nil {
		return Events{}, nil, err
	}
	values[bpf.DropLiveFull] += s.probing.lost()
	values[bpf.DropEvents] += s.events.journal.Lost()
	if s.probing.hadBursts() { // liveness checks find the frees between them
		values[bpf.DropMissedFree] = 0
	}

	var lost lossList
	for _, l := range lossCounters {
		lost.add(l.kind, "", values[l.counter])
	}
	stacks, err := lost.addStacks(s.kernel)
	if err != nil {
		return Events{}, nil, err
	}

	sum := s.retired
	for _, t := range s.targets.list() {
		sum.add(t)
	}
	lost.add(growth.LossUnknownStacks, "", sum.stacks)
	lost.add(growth.LossUnwindTables, "", uint64(s.tables.Stats().Dropped))
	lost.add(growth.LossUnwindMappings, "", sum.mappings)
	lost.add(growth.LossProcesses, "", uint64(s.follower.LeftOut()))

	return Events{
		Allocations:    values[bpf.CountAllocations],
		Frees:          values[bpf.CountFrees],
		FreesUntracked: values[bpf.CountFreesUntracked],
		Samples:        values[bpf.CountSamples],
		Failed:         values[bpf.CountFailed],
		MappingCalls:   values[bpf.CountMappingCalls],
		Stacks:         stacks,

		StacksShortened: values[bpf.CountShortened],
		FramesLeftOut:   values[bpf.CountLeftOut],
	}, lost, nil
}

// addStacks adds the stacks that were truncated, and returns the number of all stacks.
func (l *lossList) addStacks(k *kernel.Kernel) (total uint64, err error) {
	ends, err := kernel.ReadCounters(k.StackEnds)
	if err != nil {
		return 0, err
	}
	pythons, err := kernel.ReadCounters(k.PythonErrors)
	if err != nil {
		return 0, err
	}

	for end, count := range ends {
		total += count
		if cause := stack.EndReasons[bpf.StackEnd(end)]; cause != "" {
			l.add(growth.LossTruncatedStacks, cause, count)
		}
	}
	for e, count := range pythons {
		if cause := stack.PythonErrors[bpf.PythonError(e)]; cause != "" {
			l.add(growth.LossPythonFrames, cause, count)
		}
	}
	return total, nil
}

// losses are those of targets that user space counts.
type losses struct{ stacks, mappings uint64 }

func (l *losses) add(t *target) {
	l.stacks += t.stacks.Lost()
	l.mappings += uint64(t.unwinder.Space.Dropped())
}
