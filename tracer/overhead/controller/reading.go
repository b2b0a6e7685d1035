package controller

import "time"

// Costs of one event of each kind, in ns of the thread that meets it. A value that is not
// a cost, such as NaN, means 0.
type Costs struct {
	Entry      float64 // of an allocator function, at an instruction that the kernel emulates
	Stepped    float64 // of an allocator function, at an instruction that the kernel single-steps
	Return     float64 // of following a return, beside the entry
	Fault      float64 // of a page fault, beside its own
	Mapping    float64 // of a call that changes the address space, beside its own
	DriverCall float64 // of a call of the CUDA driver API, beside its own
	Block      float64 // of a report of a block of PyTorch's caching allocator
	ShimPair   float64 // of a malloc and its free below the preloaded library; 0: there is none
}

// SampleCost is the cost of a sample beside its stack walk, in ns: the entries of the live map and
// the tally.
const SampleCost = 1000

// A Reading has the counters since counting began.
type Reading struct {
	At time.Duration
	// Entries of probed functions. Stepped and TensorEntries are parts of them: entries at
	// single-stepped instructions, and entries of source tensor.
	Entries, Stepped, TensorEntries uint64
	Returns, Faults, MappingCalls   uint64
	// Walk is the time of stack walks in the kernel, measured there, and Samples the number of
	// sampled allocations.
	Walk    time.Duration
	Samples uint64
	// NewStacks were sent to user space, which names their frames.
	NewStacks uint64
	// KernelWalk is the time of stack walks for page faults and mapping calls.
	KernelWalk time.Duration
	// DriverCalls are calls of the CUDA driver API. Blocks are events of PyTorch's caching
	// allocator, BlockSamples the sampled blocks among them, and BlockWalk is the time of their stack
	// walks.
	DriverCalls, Blocks, BlockSamples uint64
	BlockWalk                         time.Duration
	// ProducerCalls are probes of producers that ran, ProducerSamples the allocations among them, and
	// ProducerWalk the time of their stack walks.
	ProducerCalls, ProducerSamples uint64
	ProducerWalk                   time.Duration
	// Busiest is the time of all probes in the thread in which they took most. It adds up spans of
	// time, in each of which that may be another thread.
	Busiest time.Duration
	// Waited is the same for the time that threads have waited for allocscope, without a CPU. Probes
	// have no part in it, and the budget has none for it.
	Waited time.Duration
	// InShim is the same for the work of the preloaded library besides its probes. No sampling
	// interval changes it, so that the budget has no part of it.
	InShim time.Duration
	// Traced is the CPU time of the traced processes, user and system, including the probes.
	Traced time.Duration
	// Own is the CPU time of allocscope itself from its start to the end of the trace, without the
	// reading of objects.
	Own time.Duration
	// LiveShare is how full the live map is, in [0, 1].
	LiveShare float64
	// Steps is the number of steps of training.
	Steps int
	// Timed are the steps that ended since the last reading.
	Timed []Step
	// BlocksListed: PyTorch's own list of its blocks can be read. It shows which are in use.
	BlocksListed bool
}

// A Step of training.
type Step struct {
	Duration time.Duration
	// Probed reports whether heap probes were attached during any part of it.
	Probed bool
}

// A timeUse is the time that the probes took from the thread that they slow down most, in a span of
// time. All but the counts are in seconds. That thread counts as having all kinds of events in the
// proportion in which all threads together had them.
type timeUse struct {
	elapsed float64
	native  float64 // CPU time of all traced processes, without the probes
	all     float64 // CPU time of the probes in all traced processes
	own     float64 // CPU time of allocscope

	probes     float64 // of the probes of heap and tensor
	walking    float64 // part of probes: stack walks, samples and their returns
	idle       float64 // part of probes: between bursts
	tensorTrap float64 // part of probes: the traps of source tensor, at most
	allowed    float64 // the budget's allowance for the probes

	kernel      float64 // of the other probes: page faults, mappings, CUDA driver, blocks, producers
	blocks      float64 // part of kernel: GPU blocks
	blockWalks  float64 // part of blocks: stack walks and samples
	blockEvents float64
	producers   float64 // part of kernel

	entries, tensors, newStacks float64
}

// maxGapSeconds bounds the time between two readings, and with it the harm of a broken clock.
const maxGapSeconds = 3600

// between returns the time used from one reading to the next.
func (p Costs) between(a, b Reading) timeUse {
	u := p.ofAllThreads(a, b)
	if busiest := seconds(a.Busiest, b.Busiest); busiest < u.inside() {
		u.scale(busiest / u.inside())
	}
	return u
}

// ofAllThreads returns the sum over all threads. A counter that went backwards counts as unchanged.
func (p Costs) ofAllThreads(a, b Reading) timeUse {
	u := timeUse{
		elapsed:   min(seconds(a.At, b.At), maxGapSeconds),
		own:       seconds(a.Own, b.Own),
		entries:   delta(a.Entries, b.Entries),
		tensors:   delta(a.TensorEntries, b.TensorEntries),
		newStacks: delta(a.NewStacks, b.NewStacks),
	}

	u.blockEvents = delta(a.Blocks, b.Blocks)
	u.blockWalks = seconds(a.BlockWalk, b.BlockWalk) +
		1e-9*SampleCost*delta(a.BlockSamples, b.BlockSamples)
	u.blocks = u.blockWalks + 1e-9*p.Block*u.blockEvents
	u.kernel = seconds(a.KernelWalk, b.KernelWalk) +
		1e-9*(p.Fault*delta(a.Faults, b.Faults)+p.Mapping*delta(a.MappingCalls, b.MappingCalls))
	u.kernel += u.blocks + 1e-9*p.DriverCall*delta(a.DriverCalls, b.DriverCalls)
	u.producers = seconds(a.ProducerWalk, b.ProducerWalk) +
		1e-9*(p.Entry*delta(a.ProducerCalls, b.ProducerCalls)+
			SampleCost*delta(a.ProducerSamples, b.ProducerSamples))
	u.kernel += u.producers

	// A call that is sampled has its return probed: a coarser interval saves both.
	stepped, returns := min(delta(a.Stepped, b.Stepped), u.entries), delta(a.Returns, b.Returns)
	samples := delta(a.Samples, b.Samples)
	sampled := min(samples, returns)
	u.walking = seconds(a.Walk, b.Walk) + 1e-9*(SampleCost*samples+p.Return*sampled)
	traps := p.Entry*(u.entries-stepped) + p.Stepped*stepped + p.Return*(returns-sampled)
	u.probes = u.walking + 1e-9*traps
	u.tensorTrap = 1e-9 * (u.tensors*p.Entry + min(u.tensors/3, returns)*p.Return)

	u.all = u.inside()
	u.native = max(seconds(a.Traced, b.Traced)-u.all, 0)
	return u
}

// scale leaves a part of the time of all threads.
func (u *timeUse) scale(part float64) {
	for _, seconds := range []*float64{
		&u.probes, &u.walking, &u.tensorTrap, &u.kernel, &u.blocks, &u.blockWalks, &u.producers,
	} {
		*seconds *= part
	}
}

// Native returns the CPU time that all threads of the traced processes used from one reading to the
// next: native is their own, and inside the time of the probes.
func (p Costs) Native(a, b Reading) (native, inside time.Duration) {
	u := p.ofAllThreads(a, b)
	return duration(u.native), duration(u.all)
}

// inside returns the time that all probes took.
func (u timeUse) inside() float64 { return u.probes + u.kernel }

// rate returns the time that the probes of heap and tensor took, as a share of the elapsed time.
func (u timeUse) rate() float64 { return u.probes / max(u.elapsed, 1e-3) }

func (u *timeUse) add(o timeUse) {
	u.elapsed += o.elapsed
	u.native += o.native
	u.all += o.all
	u.own += o.own
	u.probes += o.probes
	u.walking += o.walking
	u.idle += o.idle
	u.tensorTrap += o.tensorTrap
	u.allowed += o.allowed
	u.kernel += o.kernel
	u.blocks += o.blocks
	u.blockWalks += o.blockWalks
	u.blockEvents += o.blockEvents
	u.producers += o.producers
	u.entries += o.entries
	u.tensors += o.tensors
	u.newStacks += o.newStacks
}

func delta(a, b uint64) float64 {
	if b < a {
		return 0
	}
	return float64(b - a)
}

func seconds(a, b time.Duration) float64 { return max(0, b.Seconds()-a.Seconds()) }
