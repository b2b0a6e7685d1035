// Package growth is the domain of allocscope: stacks, snapshots of what they hold, the timeline of a process, and what
// accumulated between two moments. It does no I/O and knows neither the kernel nor any file format.
package growth

// A Module is a file that is mapped executable into the traced process, or an anonymous area of generated code.
type Module struct {
	// Path as the process sees it, "[vdso]", or "[anonymous]".
	Path string
	// BuildID in hexadecimal; empty if the file has none or could not be read.
	BuildID string
	// Start and Limit bound the mapping in the address space of the process.
	Start, Limit uint64
	// Offset of Start in the file, in bytes.
	Offset uint64
}

// A Frame is one function of a stack.
type Frame struct {
	// Function name, demangled. Never empty: what has no name reads "lib.so+0x1234".
	Function string
	// File and Line of the source; empty and 0 where unknown.
	File string
	Line int
	// StartLine is the first line of the function; 0 where unknown.
	StartLine int
	// Python is true for a function of Python, which has neither Module nor Address.
	Python bool
	// Module that holds Address; nil for an address in no mapping.
	Module *Module
	// Address of the instruction in the process; for all but the first frame, and what a signal interrupted, the return
	// address.
	Address uint64
}

// A Stack is where something was allocated, leaf first.
type Stack struct {
	// ID is unique within a trace. 0 is the stack of allocations whose stack could not be kept.
	ID uint64
	// PID of the process, as user space counts.
	PID int
	// Frames, leaf first; empty only for ID 0.
	Frames []Frame
	// Truncated says why the frames end before the start of the thread; empty if they do not.
	Truncated string
	// Root is the name under which memory without a holder stands, or that of the file it is of: "[before attach]",
	// "[file: /data/train.bin]". It is shown as one more frame, outermost. Empty: the frames say it all.
	Root string
}

// A Kind says what sort of memory is held.
type Kind string

// The kinds of memory.
const (
	KindHeap      Kind = "heap"          // from malloc and its relatives, and not freed
	KindRetained  Kind = "retained"      // freed, or never handed out, and kept by the allocator: resident all the same
	KindUntold    Kind = "untold"        // of a heap that is seen in windows: retained, or alive and not known by now
	KindMetadata  Kind = "metadata"      // the allocator's own: headers, rounding
	KindMmap      Kind = "mmap"          // private anonymous mapping that the allocator did not make
	KindPython    Kind = "python"        // arena of Python's allocator of small objects
	KindStack     Kind = "stack"         // thread stack
	KindCOW       Kind = "cow"           // copies, made when a forked process wrote to what it had inherited
	KindInherited Kind = "inherited"     // anonymous memory that a forked process still shares with its parent
	KindFile      Kind = "file"          // mapping of a file
	KindShmem     Kind = "shmem"         // shared memory: anonymous, memfd, System V, /dev/shm
	KindJIT       Kind = "jit"           // generated code
	KindDevice    Kind = "device"        // mapping of a device
	KindKernel    Kind = "kernel"        // what the kernel maps by itself: vdso
	KindBefore    Kind = "before-attach" // anonymous memory that was resident when the trace began, and still is

	KindPinned Kind = "pinned" // host memory that was pinned for a GPU: page-locked

	// On GPUs; no part of RSS.
	KindCudaBlock     Kind = "cuda_block"     // handed out by torch's caching allocator, and not freed
	KindCudaSegment   Kind = "cuda_segment"   // from the driver: segments of torch's allocator, and what anybody else allocates
	KindCudaCached    Kind = "cuda_cached"    // kept by torch's allocator and in no block. Of a device ledger alone
	KindCudaBefore    Kind = "cuda_before"    // blocks that are older than the attach. Of a device ledger alone
	KindNotAttributed Kind = "not_attributed" // what the driver counts less all of the above. Of a device ledger alone

	KindUnexplained Kind = "unexplained" // what the kernel counts less all of the above
	KindSwapped     Kind = "swapped"     // swapped out: not resident. Of rows of a ledger alone
)

// IsDevice tells whether memory of a kind is on a GPU, and so no part of what the kernel counts as resident.
func (k Kind) IsDevice() bool {
	switch k {
	case KindCudaBlock, KindCudaSegment, KindCudaCached, KindCudaBefore, KindNotAttributed:
		return true
	}
	return false
}

// isSampled is true of objects of which only some are followed.
func (k Kind) isSampled() bool { return k == KindHeap || k == KindCudaBlock }
