package growth

import "time"

// Unknown marks a value of a Sample that could not be read: a gap, not a zero.
const Unknown = -1

// A Sample is the state of a process at one moment, as the kernel counts it. Sizes are in bytes.
type Sample struct {
	// Elapsed since the start of the trace.
	Elapsed time.Duration
	// RSS is resident memory, shared pages counted whole; Virtual the size of the address space; Swap what is swapped out.
	RSS, Virtual, Swap int64
	// Anonymous, File and Shared are the parts of RSS: private anonymous memory, mapped files, shared memory.
	Anonymous, File, Shared int64
	// PSS counts shared pages by their share; Private is what no other process shares. Unknown where the reading was left
	// out because of its cost.
	PSS, Private int64
	// Threads at the moment; MinorFaults and MajorFaults since the process began.
	Threads, MinorFaults, MajorFaults int64
	// Steps of training since the attach; Unknown where no step function is known.
	Steps int64
	// Tensors is how many tensors' blocks that were allocated since the attach are alive, and TensorBytes what they asked for:
	// estimates from samples. Unknown where torch's allocator is not watched, or not all the time.
	Tensors, TensorBytes int64
	// DeviceUsed is what the driver counts for the process on all GPUs, as NVML tells: with context and modules. Unknown where
	// NVML does not tell.
	DeviceUsed int64
	// CudaAllocated and CudaReserved are the totals of torch's caching allocator over all GPUs, as it tells them itself: in blocks
	// that are handed out, and in segments that it has from the driver. Unknown before its first event since the attach.
	CudaAllocated, CudaReserved int64
	// CudaDriver is what has been allocated on GPUs through the driver's API since the attach and not been freed, by anybody, torch's
	// allocator among them; Pinned the same of host memory that the driver has pinned. Unknown where no driver is watched.
	CudaDriver, Pinned int64
}

// A Timeline is the samples of one process in the order of time.
type Timeline []Sample

// RSSAt is the resident memory of the last sample at or before a moment, of the first sample if there is none. Samples whose
// RSS is Unknown are passed over; Unknown if there are no others.
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

// StepsSince is how many steps were made after a moment, as far as they were counted.
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
