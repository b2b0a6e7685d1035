package growth

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth/verdict"
)

// Unknown marks a value of a Sample that could not be read: a gap, not a zero.
const Unknown = -1

// A Sample is the state of a process at one moment, as the kernel counts it. Sizes are in bytes.
type Sample struct {
	// Elapsed since the start of the trace.
	Elapsed time.Duration
	// RSS is resident memory, shared pages counted whole. Virtual is the size of the address space;
	// Swap is swapped out.
	RSS, Virtual, Swap int64
	// Anonymous, File and Shared are the parts of RSS: private anonymous memory, mapped files,
	// shared memory.
	Anonymous, File, Shared int64
	// PSS divides shared pages by the number of processes; Private (USS) is shared with none.
	// Unknown in samples that skip the reading because of its cost.
	PSS, Private int64
	// Threads at the moment; MinorFaults and MajorFaults since the process began.
	Threads, MinorFaults, MajorFaults int64
	// Steps of training since tracing started; Unknown without a step function.
	Steps int64
	// Tensors is the number of live tensors allocated since tracing started, and TensorBytes their
	// requested size: estimates from samples. Unknown while PyTorch's allocator is not probed all
	// the time.
	Tensors, TensorBytes int64
	// GPUUsed is the process's memory on all GPUs as NVML counts: with contexts and modules.
	// Unknown without NVML.
	GPUUsed int64
	// CudaAllocated and CudaReserved are the totals of PyTorch's caching allocator over all GPUs,
	// as it reports them: blocks handed out, and segments. Unknown before its first event since
	// tracing started.
	CudaAllocated, CudaReserved int64
	// CudaDriver is GPU memory allocated through the CUDA driver API since tracing started and not
	// freed, by the caching allocator and others. Pinned is the host memory that the driver pinned.
	// Unknown where the driver is not probed.
	CudaDriver, Pinned int64
}

// Memory is RSS with swapped memory: a process whose pages the kernel takes has not freed any.
// Unknown where RSS is.
func (s *Sample) Memory() int64 {
	if s.RSS == Unknown {
		return Unknown
	}
	return s.RSS + max(0, s.Swap)
}

// hostCounters are the values of a sample that every process has, in bytes or counts.
func (s *Sample) hostCounters() []*int64 {
	return []*int64{
		&s.RSS, &s.Virtual, &s.Swap, &s.Anonymous, &s.File, &s.Shared, &s.PSS, &s.Private,
		&s.Threads, &s.MinorFaults, &s.MajorFaults, &s.Steps, &s.Tensors, &s.TensorBytes,
	}
}

// gpuCounters are the values that a process without a GPU does not have, in bytes.
func (s *Sample) gpuCounters() []*int64 {
	return []*int64{&s.GPUUsed, &s.CudaAllocated, &s.CudaReserved, &s.CudaDriver, &s.Pinned}
}

// UnknownSample returns a sample whose values are all Unknown.
func UnknownSample() Sample {
	var s Sample
	for _, counter := range slices.Concat(s.hostCounters(), s.gpuCounters()) {
		*counter = Unknown
	}
	return s
}

// A Timeline is the samples of one process in the order of time.
type Timeline []Sample

// RSSAt returns the RSS of the last sample at or before a moment, or of the first sample if there
// is none. Samples with an Unknown RSS are skipped; the result is Unknown if there are no others.
func (t Timeline) RSSAt(elapsed time.Duration) int64 {
	rss := int64(Unknown)
	for _, s := range t {
		if s.RSS == Unknown {
			continue
		}
		if s.Elapsed > elapsed && rss != Unknown {
			break
		}
		rss = s.RSS
	}
	return rss
}

// StepsSince counts the known training steps after a moment.
func (t Timeline) StepsSince(elapsed time.Duration) int64 {
	var before, last int64
	for _, s := range t {
		if s.Steps == Unknown {
			continue
		}
		if s.Elapsed <= elapsed {
			before = s.Steps
		}
		last = s.Steps
	}
	return last - before
}

// Series returns the memory over time: see Memory.
func (t Timeline) Series() verdict.Series { return t.SeriesOf((*Sample).Memory) }

// SeriesOf returns one value over time, X in seconds since the start of the trace. Unknown values
// are left out.
func (t Timeline) SeriesOf(value func(*Sample) int64) verdict.Series {
	var s verdict.Series
	for i := range t {
		if v := value(&t[i]); v != Unknown {
			s.X = append(s.X, t[i].Elapsed.Seconds())
			s.Y = append(s.Y, float64(v))
		}
	}
	return s
}

// A Row is the sums of one moment of a trace.
type Row struct {
	// Sample sums the traced processes; all Unknown while there are none. GPU values sum the
	// processes for which they are known.
	Sample
	Tree     Tree
	System   SystemMemory
	Overhead OverheadSample
}

// A Tree is the sums over all processes of the tree. PSS and Private sum each process's latest
// reading, as a reading is expensive; Unknown until each has been read once.
type Tree struct {
	Processes, RSS, PSS, Private int64
}

// sumSamples adds samples. A host value that is unknown in one is unknown in the sum, and so is
// everything without samples. GPU values are added where known: most processes use no GPU.
func sumSamples(samples []Sample) Sample {
	if len(samples) == 0 {
		return UnknownSample()
	}

	sum := samples[0]
	for _, s := range samples[1:] {
		to := sum.hostCounters()
		for i, value := range s.hostCounters() {
			*to[i] = sumKnown(*to[i], *value)
		}

		to = sum.gpuCounters()
		for i, value := range s.gpuCounters() {
			*to[i] = sumAnyKnown(*to[i], *value)
		}
	}

	return sum
}

// sumKnown is Unknown where either value is.
func sumKnown(a, b int64) int64 {
	if a == Unknown || b == Unknown {
		return Unknown
	}
	return a + b
}

// sumAnyKnown is Unknown only where both values are.
func sumAnyKnown(a, b int64) int64 {
	switch {
	case a == Unknown:
		return b
	case b == Unknown:
		return a
	}
	return a + b
}
