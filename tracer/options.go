package tracer

import (
	"context"
	"math/bits"
	"os"
	"slices"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/probe"
)

// Options of a trace. Each zero value means the default.
type Options struct {
	// PID of the process to trace, in our PID namespace.
	PID int
	// Launch starts the process instead, whose PID Open then sets; nil: it is running.
	Launch *Launch
	// Children follows the tree of the process: all its processes are sampled, and those that
	// matter are traced.
	Children bool
	// StepSymbol is the function that runs once a training step, as LIB:SYMBOL. Empty: PyTorch's
	// backward pass.
	StepSymbol string
	// Sources to attach, of source.Names; empty: all.
	Sources []string
	// Interval is the mean number of bytes between samples; 1 samples every allocation. 0:
	// allocscope chooses the finest that the budget pays for. With Launch it is rounded to a power
	// of two.
	Interval uint64
	// Overhead is the largest share of the elapsed time that the probes may take from any thread,
	// and of the traced processes' CPU time that allocscope may take; 0: no limit.
	Overhead float64
	// OwnFloor is the share of one core that allocscope may take however little they use.
	OwnFloor float64
	// Duration of the trace; 0: unknown.
	Duration time.Duration
	// Started is when Elapsed is 0, in ns of CLOCK_MONOTONIC: the start of an earlier trace that this
	// one continues. 0: when tracing starts.
	Started uint64
	// MaxLive bounds the sampled objects that are tracked at a time. Default 262,144, each some 100
	// bytes of kernel memory, used or not.
	MaxLive int
	// MaxStacks is the number of different stacks that the BPF programs remember to have reported.
	// Default 65,536, each some 64 bytes of kernel memory once it is in use.
	MaxStacks int
	// NativeFrames keeps the native frames of the Python interpreter, which Python frames replace
	// otherwise.
	NativeFrames bool
	// NVML is the path of libnvidia-ml.so.1. Empty: the dynamic linker finds it.
	NVML string
	// TableCache is the folder that keeps unwind tables for later traces. It belongs to the current
	// user alone. Empty: none.
	TableCache string
	// Mode in which functions are probed. Default: the best that the kernel has.
	Mode probe.Mode

	// checkFilter is as in kernel.Config. Tests set it.
	checkFilter func() error
}

// A Launch starts a command whose allocations count from the first on.
type Launch struct {
	// Shim is the session's own copy of the shim, which no process has mapped yet. A program that
	// the command starts is traced if it maps this very file. It must stay open until Close.
	Shim *os.File
	// Command is the PID of the process that becomes the command, or whose children do, and UID its
	// user. Its descendants are traced, and no other process that maps the shim.
	Command, UID int
	// Start starts the command with the shim in its LD_PRELOAD, and returns its PID. Open calls it
	// when everything is attached. The command is held for a moment, until it is a target.
	Start func(ctx context.Context) (pid int, err error)
}

// wants reports whether a source is to be attached. The shim reports tensors as objects of the heap.
func (o Options) wants(source string) bool {
	if o.Launch != nil && source == "tensor" {
		return false
	}
	return len(o.Sources) == 0 || slices.Contains(o.Sources, source)
}

// walkers are the programs that will be used and walk stacks: each takes the verifier some 0.05 s.
func (o Options) walkers() (names []string) {
	if o.wants("mapping") {
		names = append(names, bpf.ProgExitMapping)
	}
	if o.wants("fault") {
		names = append(names, bpf.ProgOnFault)
	}
	if o.Launch != nil {
		names = append(names, bpf.ProgProducerAlloc)
	}
	return names
}

// faultInterval returns the mean number of bytes between sampled page faults. If allocscope may
// choose, it is longer than the heap's interval: a trainer has 100,000 page faults a second, and
// the memory that matters has many of them.
func (o Options) faultInterval(asked uint64) uint64 {
	const limitedInterval = 2 << 20
	if o.Overhead > 0 && asked == 0 {
		return limitedInterval
	}
	return o.Interval
}

// blockInterval returns the mean number of bytes between sampled blocks of GPUs at the start.
func (o Options) blockInterval(asked uint64) uint64 {
	if o.Overhead > 0 && asked == 0 {
		return controller.FirstBlockInterval
	}
	return o.Interval
}

// intervalOf returns the mean number of bytes between samples of a source; 0: it is not wanted.
func (o Options) intervalOf(source string) uint64 {
	if !o.wants(source) {
		return 0
	}
	return o.Interval
}

// kernel returns the configuration of the BPF object.
func (o Options) kernel() kernel.Config {
	return kernel.Config{
		MaxLive: o.MaxLive, MaxStacks: o.MaxStacks, MaxFaults: kernel.MaxFaults, Mode: o.Mode,
		IsShared: o.Children || o.Launch != nil, SamplesItself: o.Launch != nil,
		CheckFilter: o.checkFilter,
	}
}

func (o Options) withDefaults() Options {
	if o.Interval == 0 {
		o.Interval = kernel.DefaultInterval
	}
	o.Interval = min(o.Interval, kernel.MaxInterval)
	if o.Launch != nil { // the shim knows powers of two
		o.Interval = 1 << (bits.Len64(o.Interval+o.Interval/2) - 1)
	}

	if o.MaxLive <= 0 {
		o.MaxLive = kernel.DefaultMaxLive
	}
	if o.MaxStacks <= 0 {
		o.MaxStacks = kernel.DefaultMaxStacks
	}
	return o
}
