// Package tracer attaches to a running process, or to those of its tree that matter, and tells what they hold: Open,
// Follow, Sample, Snapshot, Close. The maps in the kernel are the state; a snapshot is one reading of them. It knows neither
// files nor statistics.
package tracer

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
)

// Options of a trace. Zero values stand for the defaults.
type Options struct {
	// PID of the process to trace, as our PID namespace counts.
	PID int
	// Children follows the process's tree: what is traced is the processes of it that matter, and all are sampled.
	Children bool
	// StepSymbol is the function that runs once a step of training, as LIB:SYMBOL; empty: that of PyTorch's backward pass.
	StepSymbol string
	// Sources to attach, of Names; empty: all.
	Sources []string
	// Interval is the mean number of bytes between samples; 1 takes every allocation. 0: chosen by what is seen, at first 512 KiB.
	Interval uint64
	// Overhead is the largest share of the traced processes' CPU time that tracing may take; 0: whatever it takes.
	Overhead float64
	// Duration of the trace, as far as it is known; 0: it is not.
	Duration time.Duration
	// MaxLive bounds the sampled allocations that are followed at a time. Default 262,144, about 100 bytes of kernel
	// memory each, used or not.
	MaxLive int
	// MaxStacks is the number of different stacks that the kernel side remembers to have announced. Default 65,536, about 64
	// bytes of kernel memory each when in use.
	MaxStacks int
	// NativeFrames keeps the native frames of the Python interpreter; else Python frames stand for them.
	NativeFrames bool
	// NVML is the path of libnvidia-ml.so.1; empty: where the dynamic linker finds it.
	NVML string
	// Mode in which functions are probed; the best that the kernel has by default.
	Mode probe.Mode
}

// wants tells whether a source is to be attached.
func (o Options) wants(source string) bool {
	return len(o.Sources) == 0 || slices.Contains(o.Sources, source)
}

// faultInterval is the mean number of bytes of the page faults of which one is sampled. Where the interval is ours to choose it is
// coarser than that of the heap: a trainer has a hundred thousand page faults a second, and what matters holds many.
func (o Options) faultInterval(asked uint64) uint64 {
	const coarse = 2 << 20
	if o.Overhead > 0 && asked == 0 {
		return coarse
	}
	return o.Interval
}

// intervalOf is the mean number of bytes between samples of a source; 0: it is not to be attached.
func (o Options) intervalOf(source string) uint64 {
	if !o.wants(source) {
		return 0
	}
	return o.Interval
}

// kernel is what the BPF object is configured with.
func (o Options) kernel() kernel.Config {
	return kernel.Config{MaxLive: o.MaxLive, MaxStacks: o.MaxStacks, MaxFaults: kernel.MaxFaults, Mode: o.Mode}
}

func (o Options) withDefaults() Options {
	if o.Interval == 0 {
		o.Interval = kernel.DefaultInterval
	}
	o.Interval = min(o.Interval, kernel.MaxInterval)
	if o.MaxLive <= 0 {
		o.MaxLive = kernel.DefaultMaxLive
	}
	if o.MaxStacks <= 0 {
		o.MaxStacks = kernel.DefaultMaxStacks
	}
	return o
}
