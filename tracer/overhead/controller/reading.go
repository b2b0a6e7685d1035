package controller

import "time"

// Costs of one event of each kind, in ns of CPU time of the traced processes. A value that is not
// a cost, such as NaN, means 0.
type Costs struct {
	Entry      float64 // of an allocator function, at an instruction that the kernel emulates
	Stepped    float64 // of an allocator function, at an instruction that the kernel single-steps
	Return     float64 // of following a return, beside the entry
	Fault      float64 // of a page fault, beside its own
	Mapping    float64 // of a call that changes the address space, beside its own
	DriverCall float64 // of a call of the CUDA driver API, beside its own
}

// sampleCost is what a sample costs beside its stack walk, in ns: the entries of the live map and
// the tally.
const sampleCost = 1000

// A Reading has the counters since counting began.
type Reading struct {
	At time.Duration
	// Entries of probed functions. Stepped and TensorEntries are parts of them: those at
	// single-stepped instructions, and those of source tensor.
	Entries, Stepped, TensorEntries uint64
	Returns, Faults, MappingCalls   uint64
	// Walk is the time of stack walks in the kernel, measured there, and Samples the number of
	// sampled allocations.
	Walk    time.Duration
	Samples uint64
	// KernelWalk is the time of stack walks for page faults and mapping calls.
	KernelWalk time.Duration
	// DriverCalls are calls of the CUDA driver API. Blocks are events of PyTorch's caching
	// allocator, BlockTime is their time in the kernel, and BlockWalk the part for stack walks.
	DriverCalls, Blocks  uint64
	BlockTime, BlockWalk time.Duration
	// Traced is the CPU time of the traced processes, user and system, including the probes.
	Traced time.Duration
	// Own is the CPU time of allocscope itself.
	Own time.Duration
	// Steps is the number of steps of training.
	Steps int
	// Timed are the steps that ended since the last reading.
	Timed []Step
}

// A Step of training.
type Step struct {
	Duration time.Duration
	// Probed reports whether heap probes were attached during any part of it.
	Probed bool
}

// A cpuUse is the CPU time used in a span of time. All but the counts are in seconds.
type cpuUse struct {
	elapsed float64
	native  float64 // of the traced processes, without the probes
	work    float64 // native, but at least MinTracedCores

	probes  float64 // of the probes of heap and tensor
	walking float64 // part of probes: stack walks and samples
	idle    float64 // part of probes: between bursts
	allowed float64 // what the budget allowed the probes

	kernel      float64 // of the other probes: page faults, mapping calls, CUDA driver, blocks
	blocks      float64 // part of kernel: GPU blocks
	blockWalks  float64 // part of blocks: stack walks
	blockEvents float64
	own         float64 // of allocscope

	entries, tensors, returns float64
}

// MinTracedCores is the number of cores that the traced processes count as using when they use
// less. A limit of 3 % then allows 6 ms of CPU time a second. Without it a program that sleeps
// would have no budget for the few calls that it makes.
const MinTracedCores = 0.2

// maxGapSeconds bounds the time between two readings, and with it the harm of a broken clock.
const maxGapSeconds = 3600

// between returns the CPU time used from one reading to the next. A counter that went backwards
// counts as unchanged.
func (p Costs) between(a, b Reading) cpuUse {
	u := cpuUse{
		elapsed: min(seconds(a.At, b.At), maxGapSeconds),
		walking: seconds(a.Walk, b.Walk) + sampleCost*1e-9*delta(a.Samples, b.Samples),
		own:     seconds(a.Own, b.Own),
		entries: delta(a.Entries, b.Entries),
		tensors: delta(a.TensorEntries, b.TensorEntries),
		returns: delta(a.Returns, b.Returns),
	}

	u.blockEvents, u.blockWalks = delta(a.Blocks, b.Blocks), seconds(a.BlockWalk, b.BlockWalk)
	u.blocks = seconds(a.BlockTime, b.BlockTime) + 1e-9*p.Entry*u.blockEvents
	u.kernel = seconds(a.KernelWalk, b.KernelWalk) +
		1e-9*(p.Fault*delta(a.Faults, b.Faults)+p.Mapping*delta(a.MappingCalls, b.MappingCalls))
	u.kernel += u.blocks + 1e-9*p.DriverCall*delta(a.DriverCalls, b.DriverCalls)

	stepped := min(delta(a.Stepped, b.Stepped), u.entries)
	traps := p.Entry*(u.entries-stepped) + p.Stepped*stepped + p.Return*u.returns
	u.probes = u.walking + 1e-9*traps

	u.native = max(seconds(a.Traced, b.Traced)-u.inside(), 0)
	u.work = max(u.native, MinTracedCores*u.elapsed)
	return u
}

// Native returns the CPU time that the traced processes used from one reading to the next: native
// is their own, inside that of the probes.
func (p Costs) Native(a, b Reading) (native, inside time.Duration) {
	u := p.between(a, b)
	return duration(u.native), duration(u.inside())
}

// inside returns the CPU time of the traced processes that probes took.
func (u cpuUse) inside() float64 { return u.probes + u.kernel }

// share returns the CPU time of the heap and tensor probes as a share of the program's own; at
// most 1000.
func (u cpuUse) share() float64 {
	if u.probes <= 0 {
		return 0
	}
	return u.probes / max(u.work, u.probes/1000)
}

func (u *cpuUse) add(o cpuUse) {
	u.elapsed += o.elapsed
	u.native += o.native
	u.work += o.work
	u.probes += o.probes
	u.walking += o.walking
	u.idle += o.idle
	u.allowed += o.allowed
	u.kernel += o.kernel
	u.blocks += o.blocks
	u.blockWalks += o.blockWalks
	u.blockEvents += o.blockEvents
	u.own += o.own
	u.entries += o.entries
	u.tensors += o.tensors
	u.returns += o.returns
}

func delta(a, b uint64) float64 {
	if b < a {
		return 0
	}
	return float64(b - a)
}

func seconds(a, b time.Duration) float64 { return max(0, b.Seconds()-a.Seconds()) }
