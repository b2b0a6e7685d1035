package controller

import (
	"math"
	"time"
)

// Prices of what the probes do, in ns of CPU time of the traced processes. What is not a price, such as NaN, costs nothing.
type Prices struct {
	Entry   float64 // of an allocator's function, at an instruction that the kernel emulates
	Stepped float64 // the same at one that it single-steps
	Return  float64 // what following a return costs more
	Fault   float64 // a page fault, beside what it costs untraced
	Mapping float64 // a call that changes the address space, likewise
	Device  float64 // a call of CUDA's driver, likewise
}

// samplePrice is what a sample costs beside its stack: entries in the live map and the tally, in ns.
const samplePrice = 1000

// A Reading is what has been counted since counting began.
type Reading struct {
	At time.Duration
	// Entries of probed functions, among them those at Stepped instructions and TensorEntries, those of source tensor.
	Entries, Stepped, TensorEntries uint64
	Returns, Faults, MappingCalls   uint64
	// Walk is the time that walking stacks took in the kernel, as measured there, and Samples the allocations sampled.
	Walk    time.Duration
	Samples uint64
	// KernelWalk is the same time for page faults and mappings.
	KernelWalk time.Duration
	// DeviceCalls of CUDA's driver. Blocks are events of torch's allocator for CUDA, BlockTime what they took in the kernel as measured
	// there, and BlockWalk the part of it that walking stacks took.
	DeviceCalls, Blocks  uint64
	BlockTime, BlockWalk time.Duration
	// Traced is the CPU time of the traced processes, user and system, with that of the probes.
	Traced time.Duration
	// Own is the CPU time of allocscope itself.
	Own time.Duration
	// Steps that there were.
	Steps int
	// Timed are the steps that have ended since the last reading.
	Timed []Step
}

// A Step of training.
type Step struct {
	Duration time.Duration
	// Probed tells whether probes of heap were attached during any part of it.
	Probed bool
}

// A spending is what happened in some time. All but counts are in seconds.
type spending struct {
	elapsed                   float64
	native                    float64 // CPU time of the traced processes without that of the probes
	work                      float64 // the same, but never less than quiet allows
	probes                    float64 // of it the probes of heap and tensor
	walking                   float64 // of these walking stacks and keeping samples
	idle                      float64 // of these what was spent while no window was open
	kernel                    float64 // the probes that never close: page faults, mappings and CUDA's driver; and blocks
	blocks                    float64 // of it blocks of torch's allocator for CUDA
	blockWalks                float64 // of these walking stacks
	blockEvents               float64
	own                       float64
	allowed                   float64 // what the probes of heap and tensor might have taken
	entries, tensors, returns float64
}

// quiet is the part of a core that processes count as using when they use less: 3 % of it are 6 ms a second, which nobody
// waits for. Otherwise a program that sleeps would have no budget for the few calls it makes.
const quiet = 0.2

// longestGap bounds the time that one reading can stand for, in seconds, and with it what a broken clock can do.
const longestGap = 3600

// between tells what happened from one reading to the next. Where a counter went backwards, nothing did.
func (p Prices) between(a, b Reading) spending {
	s := spending{
		elapsed: min(seconds(a.At, b.At), longestGap),
		walking: seconds(a.Walk, b.Walk) + samplePrice*1e-9*since(a.Samples, b.Samples),
		kernel:  seconds(a.KernelWalk, b.KernelWalk) + 1e-9*(p.Fault*since(a.Faults, b.Faults)+p.Mapping*since(a.MappingCalls, b.MappingCalls)),
		own:     seconds(a.Own, b.Own),
		entries: since(a.Entries, b.Entries),
		tensors: since(a.TensorEntries, b.TensorEntries),
		returns: since(a.Returns, b.Returns),
	}
	s.blockEvents, s.blockWalks = since(a.Blocks, b.Blocks), seconds(a.BlockWalk, b.BlockWalk)
	s.blocks = seconds(a.BlockTime, b.BlockTime) + 1e-9*p.Entry*s.blockEvents
	s.kernel += s.blocks + 1e-9*p.Device*since(a.DeviceCalls, b.DeviceCalls)
	stepped := min(since(a.Stepped, b.Stepped), s.entries)
	traps := p.Entry*(s.entries-stepped) + p.Stepped*stepped + p.Return*s.returns
	s.probes = s.walking + 1e-9*traps
	s.native = max(seconds(a.Traced, b.Traced)-s.inside(), 0)
	s.work = max(s.native, quiet*s.elapsed)
	return s
}

// Native is the CPU time that the traced processes took for themselves from one reading to the next, and Inside that of the probes.
func (p Prices) Native(a, b Reading) (native, inside time.Duration) {
	s := p.between(a, b)
	return duration(s.native), duration(s.inside())
}

// inside is the CPU time of the traced processes that probes took.
func (s spending) inside() float64 { return s.probes + s.kernel }

// share of the traced processes' own CPU time that the probes took; at most 1000.
func (s spending) share() float64 {
	if s.probes <= 0 {
		return 0
	}
	return s.probes / max(s.work, s.probes/1000)
}

func (s *spending) add(o spending) {
	s.elapsed += o.elapsed
	s.native += o.native
	s.work += o.work
	s.probes += o.probes
	s.walking += o.walking
	s.idle += o.idle
	s.kernel += o.kernel
	s.blocks += o.blocks
	s.blockWalks += o.blockWalks
	s.blockEvents += o.blockEvents
	s.own += o.own
	s.allowed += o.allowed
	s.entries += o.entries
	s.tensors += o.tensors
	s.returns += o.returns
}

func since(a, b uint64) float64 {
	if b < a {
		return 0
	}
	return float64(b - a)
}

func seconds(a, b time.Duration) float64 { return max(0, b.Seconds()-a.Seconds()) }

// sane replaces what makes no sense.
func (o Options) sane() Options {
	if !(o.Limit > 0 && o.Limit <= 1) {
		o.Limit = 0.03
	}
	o.Limit = max(o.Limit, 1e-6)
	for _, p := range []*float64{&o.Prices.Entry, &o.Prices.Stepped, &o.Prices.Return, &o.Prices.Fault, &o.Prices.Mapping, &o.Prices.Device} {
		if !(*p >= 0) {
			*p = 0
		}
		*p = min(*p, 1e6)
	}
	if o.Maturity <= 0 {
		o.Maturity = time.Minute
	}
	o.Interval = min(o.Interval, math.MaxUint32)
	return o
}
