package stack

import (
	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// endReasons name the causes for which a stack ends before the start of its thread. They are shown
// as its last frame.
var endReasons = map[bpf.StackEnd]string{
	bpf.EndLimit:        "too many frames",
	bpf.EndNotReady:     "unwind table not ready yet",
	bpf.EndUnmapped:     "code at an unknown address",
	bpf.EndNoRule:       "code without unwind information",
	bpf.EndUnsupported:  "unwind information not supported",
	bpf.EndStackMemory:  "stack memory not readable",
	bpf.EndFramePointer: "no frame pointer",
}

// pythonErrors name the causes for which a stack lacks Python frames.
var pythonErrors = map[bpf.PythonError]string{
	bpf.PythonNoThread: "Python thread not found",
	bpf.PythonMemory:   "Python frames not readable",
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
