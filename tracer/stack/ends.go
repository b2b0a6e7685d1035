package stack

import (
	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// endReasons name the causes for which a stack ends before the start of its thread. They are shown
// as its last frame.
var endReasons = map[bpf.StackEnd]growth.Truncation{
	bpf.EndLimit:        growth.TruncatedLimit,
	bpf.EndNotReady:     growth.TruncatedNotReady,
	bpf.EndUnmapped:     growth.TruncatedUnmapped,
	bpf.EndNoRule:       growth.TruncatedNoRule,
	bpf.EndUnsupported:  growth.TruncatedUnsupported,
	bpf.EndStackMemory:  growth.TruncatedMemory,
	bpf.EndFramePointer: growth.TruncatedFramePointer,
}

// pythonErrors name the causes for which a stack lacks Python frames.
var pythonErrors = map[bpf.PythonError]growth.Truncation{
	bpf.PythonNoThread: growth.TruncatedPythonThread,
	bpf.PythonMemory:   growth.TruncatedPythonMemory,
}

// ReadEnds returns the number of stacks that were walked, and those that lack frames, by cause.
func ReadEnds(k *kernel.Kernel) (total uint64, lost growth.Losses, err error) {
	ends, err := kernel.ReadCounters(k.StackEnds)
	if err != nil {
		return 0, nil, err
	}
	pythons, err := kernel.ReadCounters(k.PythonErrors)
	if err != nil {
		return 0, nil, err
	}

	for end, count := range ends {
		total += count
		if cause := endReasons[bpf.StackEnd(end)]; cause != "" {
			lost.Add(growth.LossTruncatedStacks, cause, count)
		}
	}
	for e, count := range pythons {
		if cause := pythonErrors[bpf.PythonError(e)]; cause != "" {
			lost.Add(growth.LossPythonFrames, cause, count)
		}
	}
	return total, lost, nil
}
