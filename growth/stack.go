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
}

// A Kind says what sort of memory is held.
type Kind string

// The kinds of memory.
const (
	KindHeap   Kind = "heap"   // from malloc and its relatives
	KindMmap   Kind = "mmap"   // private anonymous mapping that the allocator did not make
	KindBrk    Kind = "brk"    // the main heap's growth, where the heap itself is not traced
	KindFile   Kind = "file"   // mapping of a file
	KindShmem  Kind = "shmem"  // shared memory: anonymous, memfd, System V, /dev/shm
	KindStack  Kind = "stack"  // thread stack
	KindDevice Kind = "device" // mapping of a device
)
