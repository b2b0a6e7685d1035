package growth

// A Kind classifies memory by its use.
type Kind string

// The kinds of memory in a host's RAM.
const (
	KindHeap          Kind = "heap"           // from malloc and its relatives, and not freed
	KindRetained      Kind = "retained"       // free in the allocator, and resident all the same
	KindUnclassified  Kind = "unclassified"   // heap in bursts or with losses: free, or not known
	KindMetadata      Kind = "metadata"       // the allocator's own: chunk headers, rounding
	KindMmap          Kind = "mmap"           // private anonymous VMA that the allocator did not make
	KindPython        Kind = "python"         // arena of CPython's obmalloc
	KindStack         Kind = "stack"          // thread stack
	KindCOW           Kind = "cow"            // pages that a forked process copied by writing to them
	KindInherited     Kind = "inherited"      // pages that a forked process shares with its parent
	KindFile          Kind = "file"           // VMA of a file
	KindShmem         Kind = "shmem"          // shared memory: anonymous, memfd, System V, /dev/shm
	KindJIT           Kind = "jit"            // generated code
	KindDeviceFile    Kind = "device-file"    // VMA of a device file
	KindKernel        Kind = "kernel"         // mapped by the kernel itself: vdso
	KindBeforeTracing Kind = "before-tracing" // anonymous, resident since before tracing started
	KindOlder         Kind = "older"          // of blocks and VMAs older than the trace, touched since

	KindPinned Kind = "pinned" // page-locked for copies to a GPU

	KindUnexplained Kind = "unexplained" // RSS less all kinds above
	KindSwapped     Kind = "swapped"     // swapped out, not resident; in breakdowns
)

// The kinds of memory on GPUs, which is no part of RSS.
const (
	KindCudaBlock         Kind = "cuda-block"          // of PyTorch's caching allocator, not freed
	KindCudaSegment       Kind = "cuda-segment"        // allocated by the driver, for it or others
	KindCudaCached        Kind = "cuda-cached"         // in segments, not allocated; in breakdowns
	KindCudaPinned        Kind = "cuda-pinned"         // the part whose segments have blocks in use
	KindCudaReturnable    Kind = "cuda-returnable"     // the part that empty_cache() returns
	KindCudaPools         Kind = "cuda-pools"          // the part in private pools
	KindCudaBeforeTracing Kind = "cuda-before-tracing" // blocks older than the trace; in breakdowns
	KindNotAttributed     Kind = "not-attributed"      // NVML's count less all above; in breakdowns
)

// IsGPU is true of memory on a GPU, which the kernel does not count as resident.
func (k Kind) IsGPU() bool {
	switch k {
	case KindCudaBlock, KindCudaSegment, KindCudaBeforeTracing, KindNotAttributed:
		return true
	}
	return k.IsGPUCached()
}

// IsGPUCached is true of memory that PyTorch's caching allocator has reserved and not allocated.
func (k Kind) IsGPUCached() bool {
	switch k {
	case KindCudaCached, KindCudaPinned, KindCudaReturnable, KindCudaPools:
		return true
	}
	return false
}

// IsSampled is true of kinds of which only sampled objects are recorded.
func (k Kind) IsSampled() bool { return k == KindHeap || k == KindCudaBlock }
