// Package growth is the domain of allocscope: stacks, snapshots of the memory that they hold, the
// history of a process tree, and the difference between two snapshots. It does no I/O and knows
// neither the kernel nor any file format.
package growth

import (
	"hash/fnv"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Module is a file that is mapped executable into the traced process, or an anonymous area of
// generated code.
type Module struct {
	// Path as the process sees it, "[vdso]", or ModuleAnonymous.
	Path string
	// BuildID in hexadecimal; empty if the file has none or could not be read.
	BuildID string
	// Start and Limit bound the VMA in the address space of the process.
	Start, Limit uint64
	// Offset of Start in the file, in bytes.
	Offset uint64
}

// ModuleAnonymous is Module.Path of memory without a file, which holds generated code.
const ModuleAnonymous = "[anonymous]"

// A Frame is one function of a stack.
type Frame struct {
	// Function name, demangled. Never empty: code without a symbol reads "lib.so+0x1234".
	Function string
	// File and Line of the source; empty and 0 where unknown.
	File string
	Line int
	// StartLine is the first line of the function; 0 where unknown.
	StartLine int
	// Python is true for a function of Python, which has neither Module nor Address.
	Python bool
	// Module that contains Address; nil for an address in no VMA.
	Module *Module
	// Address of the instruction. It is the return address, except in the leaf frame and in a
	// frame that a signal interrupted.
	Address uint64
}

// rootFunction matches the functions that a thread or a program starts in, by the last part of their
// names. Of threading.Thread and multiprocessing.Process, run starts one.
var rootFunction = regexp.MustCompile(`^(<module>|main|_main|_start|clone3?|start_thread|` +
	`thread_start|execute_native_thread_routine|__libc_start_(main|call_main|main_impl)|` +
	`Py_(Bytes|Run)?[Mm]ain|pymain_run_python|([^.]+\.)*(_bootstrap|_bootstrap_inner)|` +
	`(Thread|Process|BaseProcess)\.run)$`)

// IsRoot reports whether a thread or a program starts in the function: all of its stacks have it.
func (f *Frame) IsRoot() bool {
	name, _, _ := strings.Cut(f.Function, "(")
	return rootFunction.MatchString(name)
}

// IsUserCode reports whether the frame is Python code that is neither installed nor generated.
func (f *Frame) IsUserCode() bool { return f.Python && IsUserCode(f.Function, f.File, f.Line) }

// notUserFile matches source files of installed packages, of the standard library, of console
// scripts such as bin/torchrun, code that exists in memory alone, such as <string>, and code that
// Inductor generates. Its cache has a folder of two characters of the file's name, which is the
// letter c and 51 characters of a hash (torch/_inductor/codecache.py).
var notUserFile = regexp.MustCompile(`^$|^<|/(site|dist)-packages/|/lib(64)?/python[0-9][^/]*/|` +
	`/bin/[^/.]+$|/torchinductor_[^/]*/|/[a-z2-7]{2}/c[a-z2-7]{51}\.py$`)

// IsUserCode reports whether the user of a Python program can change a function at a line: in a
// source file, on the standard input, or in the code after python -c. The latter has the name of
// code that dataclasses and namedtuple generate, and of the line that starts a process of
// multiprocessing.
func IsUserCode(function, file string, line int) bool {
	switch file {
	case "<stdin>":
		return true
	case "<string>":
		isGenerated := strings.HasPrefix(function, "__") || function == "<lambda>"
		return !isGenerated && (function != "<module>" || line > 1)
	}
	return !notUserFile.MatchString(file)
}

// A Stack is the call stack of an allocation, leaf first.
type Stack struct {
	// ID is unique within a trace. 0 is the stack of allocations whose stack was lost.
	ID uint64
	// PID of the process, as user space counts.
	PID int
	// Frames, leaf first; empty only for ID 0.
	Frames []Frame
	// Truncated is the reason why the frames end before the start of the thread, or several reasons
	// with commas; empty if they do not.
	Truncated string
	// Root names memory that has no allocation site, such as "[before tracing]" or
	// "[file: /data/train.bin]". It is shown as one more frame, outermost. Empty for a stack
	// that was sampled.
	Root string
}

// NamedStack returns a stack for memory without an allocation site: names, leaf first, under a root
// such as "[heap: free but resident]". Equal arguments give equal IDs.
func NamedStack(pid int, root string, names ...string) *Stack {
	s := &Stack{PID: pid, Root: root}
	for _, name := range names {
		s.Frames = append(s.Frames, Frame{Function: name})
	}

	hash := fnv.New64a() // its Write never fails
	_, _ = hash.Write(strconv.AppendInt(nil, int64(pid), 10))
	for _, name := range append(slices.Clip(names), root) {
		_, _ = hash.Write([]byte("\x00" + name))
	}
	s.ID = hash.Sum64()

	return s
}

// Under returns a copy of the stack below a root.
func (s *Stack) Under(root string) *Stack {
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(root))

	moved := *s
	moved.Root = root
	moved.ID = s.ID ^ hash.Sum64()

	return &moved
}

// AllocatorFunctions is an expression for the names, without parameters, of functions that are
// called to allocate, and of those by which an allocator calls the kernel or a GPU's driver. It has
// no anchors. PyTorch's CUDACachingAllocator calls itself by functions without a symbol.
const AllocatorFunctions = `(__GI_)?(__libc_|__)?(` +
	`malloc|calloc|realloc|reallocarray|posix_memalign|aligned_alloc|memalign|valloc|pvalloc|` +
	`cfree|free|` +
	`mmap|mmap64|mremap|munmap|madvise|brk|sbrk)|` +
	`operator new(\[\])?|` +
	`cuMem(Alloc|AllocPitch|AllocManaged|AllocAsync|AllocFromPoolAsync|AllocHost|HostAlloc|` +
	`HostRegister|Create)(_v2)?(_ptsz)?|` +
	`cuda(Malloc(Pitch|3D|Array|Managed|Host|Async|FromPoolAsync)?|HostAlloc|HostRegister)` +
	`(_ptsz)?|` +
	`libc10_cuda[-.0-9a-f]*\.so\+0x[0-9a-f]+|` +
	`c10::cuda::CUDACachingAllocator::.*|c10::reportMemoryUsageToProfiler`

var allocatorFunction = regexp.MustCompile(`^(` + AllocatorFunctions + `)$`)

// allocators are the functions of IsAllocatorFunction.
var allocators = nameTest{ask: func(function string) bool {
	name, _, _ := strings.Cut(function, "(")
	return allocatorFunction.MatchString(name)
}}

// IsAllocatorFunction is true of a native function that AllocatorFunctions matches. Parameters in
// its name are ignored.
func IsAllocatorFunction(function string) bool { return allocators.of(function) }

// WithoutAllocator returns the frames, leaf first, from the caller of the allocator on. It returns
// all of them where the allocator has no caller.
func WithoutAllocator(frames []Frame) []Frame {
	called := false
	for i, f := range slices.Backward(frames) {
		switch {
		case f.Python || !IsAllocatorFunction(f.Function) && !f.isOfGPUCache():
			called = true
		case called:
			return frames[i+1:]
		}
	}
	return frames
}

// isOfGPUCache is true of a native frame in the library of PyTorch's caching allocator of GPU memory,
// whose functions have no names in some builds.
func (f *Frame) isOfGPUCache() bool {
	return f.Module != nil && strings.HasPrefix(path.Base(f.Module.Path), "libc10_cuda")
}
