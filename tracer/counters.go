package tracer

import (
	"github.com/allocscope/allocscope/bpf"
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
	// MappingCalls are mmap, munmap, mremap, brk and madvise.
	MappingCalls uint64
}

// Total returns the number of calls.
func (e Events) Total() uint64 { return e.Allocations + e.Frees + e.MappingCalls }

// A LossKind is what was not measured.
type LossKind int

// The losses, in the order in which Counters returns them.
const (
	LossLiveFull LossKind = iota
	LossFaultsFull
	LossTallyFull
	LossEvents
	LossThreadState
	LossNoMemory
	LossOutPointer
	LossMissedReturn
	LossMissedFree
	LossGPUFull
	LossTruncatedStacks
	LossPythonFrames
	LossUnknownStacks
	LossUnwindTables
	LossUnwindMappings
	LossProcesses
)

// lossTexts say what was lost: why, and how to avoid it.
var lossTexts = [...]string{
	LossLiveFull:        "allocations not tracked: the live map was full (raise --max-live, --interval)",
	LossFaultsFull:      "page faults not tracked: too many pages (raise --interval)",
	LossTallyFull:       "allocations missing from alloc_objects, alloc_space: the tally map was full",
	LossEvents:          "events lost: ring buffer full (mappings come from /proc, without stacks)",
	LossThreadState:     "calls not seen: no kernel memory for the state of a thread",
	LossNoMemory:        "entries missing from alloc_objects, alloc_space: no kernel memory",
	LossOutPointer:      "allocations not tracked: result not readable",
	LossMissedReturn:    "allocations not tracked: return not seen",
	LossMissedFree:      "frees not seen: the address was allocated again",
	LossGPUFull:         "GPU allocations not tracked: too many (raise --interval)",
	LossTruncatedStacks: "truncated stacks",
	LossPythonFrames:    "stacks without some Python frames",
	LossUnknownStacks:   "unknown stacks (ring buffer or stack table full)",
	LossUnwindTables:    "files that stacks cannot be walked through: too many unwind tables",
	LossUnwindMappings:  "mappings that stacks cannot be walked through: too many",
	LossProcesses:       "processes of the tree not followed: too many, or not readable",
}

// String returns the text for people.
func (k LossKind) String() string { return lossTexts[k] }

// A Loss is something that was not measured.
type Loss struct {
	Kind LossKind
	// Reason is the text of the kind. For truncated stacks and missing Python frames, it has the
	// cause.
	Reason string
	Count  uint64
}

// lossCounters are the kinds that the BPF programs count.
var lossCounters = []struct {
	kind    LossKind
	counter bpf.Counter
}{
	{LossLiveFull, bpf.DropLiveFull},
	{LossFaultsFull, bpf.DropFaultsFull},
	{LossTallyFull, bpf.DropTallyFull},
	{LossEvents, bpf.DropEvents},
	{LossThreadState, bpf.DropThreadState},
	{LossNoMemory, bpf.DropNoMemory},
	{LossOutPointer, bpf.DropOutPointer},
	{LossMissedReturn, bpf.DropMissedReturn},
	{LossMissedFree, bpf.DropMissedFree},
	{LossGPUFull, bpf.DropGpuFull},
}

// lossList collects the losses that have occurred.
type lossList []Loss

// add adds a loss with its cause, which may be empty.
func (l *lossList) add(kind LossKind, cause string, count uint64) {
	if count == 0 {
		return
	}
	reason := kind.String()
	if cause != "" {
		reason += ": " + cause
	}
	*l = append(*l, Loss{Kind: kind, Reason: reason, Count: count})
}

// Counters reads what was seen and what was lost. It returns only losses that have occurred.
func (s *Session) Counters() (Events, []Loss, error) {
	values, err := kernel.ReadCounters(s.kernel.Counters)
	if err != nil {
		return Events{}, nil, err
	}
	values[bpf.DropLiveFull] += s.probing.lost()
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
	lost.add(LossUnknownStacks, "", sum.stacks)
	lost.add(LossUnwindTables, "", uint64(s.tables.Stats().Dropped))
	lost.add(LossUnwindMappings, "", sum.mappings)
	lost.add(LossProcesses, "", uint64(s.follower.LeftOut()))

	return Events{
		Allocations:    values[bpf.CountAllocations],
		Frees:          values[bpf.CountFrees],
		FreesUntracked: values[bpf.CountFreesUntracked],
		Samples:        values[bpf.CountSamples],
		Failed:         values[bpf.CountFailed],
		MappingCalls:   values[bpf.CountMappingCalls],
		Stacks:         stacks,
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
			l.add(LossTruncatedStacks, cause, count)
		}
	}
	for e, count := range pythons {
		if cause := stack.PythonErrors[bpf.PythonError(e)]; cause != "" {
			l.add(LossPythonFrames, cause, count)
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
