package growth

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Roots name memory without an allocation site: Stack.Root. They are the outermost frames of its
// stacks, and users see them. Files and shared memory have a root each: RootOf.
const (
	// RootRetained is heap memory that no live object takes, if all live objects are known.
	RootRetained = "[heap: free but resident]"

	// RootUnclassified is heap memory that no known object takes, if the heap is probed in bursts or
	// calls were lost: free, or taken by objects that were not seen or are too young to be known.
	RootUnclassified = "[heap: unclassified]"

	// RootMetadata is the memory that malloc takes for live objects beyond the requested bytes:
	// chunk headers and padding.
	RootMetadata = "[heap: allocator metadata]"

	// RootUnknownSite is all heap memory of a process whose heap is not probed.
	RootUnknownSite = "[heap: allocation site unknown]"

	// RootGrowth is heap memory whose stack is known because it made the heap grow.
	RootGrowth = "[heap: by growth]"

	// RootBeforeTracing is private memory that was resident when tracing started and still is.
	RootBeforeTracing = "[before tracing]"

	// RootStart is the same of a process that is traced from its first allocation on: memory from
	// the kernel and the dynamic loader.
	RootStart = "[start of the process]"

	// RootOlder is private memory in mappings and in blocks of malloc from before tracing, first
	// touched since.
	RootOlder = "[older memory, touched now]"

	// RootMapped is private memory whose mapping is not known to be older or younger than the
	// trace.
	RootMapped = "[mapped]"

	// RootUnobserved is memory that was mapped while the process was traced, by a call that source
	// mapping did not see.
	RootUnobserved = "[mapped without a system call being seen]"

	// RootPython is arenas of pymalloc, CPython's allocator of small objects.
	RootPython = "[python arenas]"

	RootStacks = "[thread stacks]"
	RootJIT    = "[generated code]"
	RootKernel = "[mapped by the kernel]" // vdso

	// RootCopied is private memory that a forked process has copied on write.
	RootCopied = "[copy-on-write]"

	// RootInherited is private memory that a forked process still shares with its parent.
	RootInherited = "[inherited]"

	// RootSwapped is memory that is not in RAM, and RootUnexplained is RSS less all other rows. It
	// may be negative.
	RootSwapped     = "[swapped out]"
	RootUnexplained = "[unexplained]"

	// Roots of GPU memory.
	RootCudaBeforeTracing = "[cuda: before tracing]"
	RootCudaUntraced      = "[cuda: blocks not traced]"
	RootCudaCached        = "[cuda: cached by torch]"
	RootCudaPinned        = "[cuda: cached by torch, pinned by blocks]"
	RootCudaReturnable    = "[cuda: cached by torch, returnable]"
	RootCudaPools         = "[cuda: cached by torch, private pools]"
	RootNotAttributed     = "[gpu: not attributed]"
)

// Functions of frames in place of missing ones.
const (
	// FramesLeftOut takes the place of frames in the middle of a long stack. Their number is not part
	// of it, so that stacks that differ in depth alone are one.
	FramesLeftOut = "[frames left out]"
	// FrameUnknownCaller is an unknown caller of the allocator. FramePythonGone is a frame of Python
	// whose code object was gone before it could be read.
	FrameUnknownCaller = "[unknown caller]"
	FramePythonGone    = "[Python code that was gone before it could be read]"

	unknownStack    = "[stack unknown]"
	lostPrefix      = "[stack not kept: "
	truncatedPrefix = "[truncated: "
)

// A Truncation is why a stack ends before the start of its thread, or lacks frames of Python.
type Truncation string

// The truncations.
const (
	TruncatedLimit        Truncation = "too-many-frames"
	TruncatedNotReady     Truncation = "table-not-ready"
	TruncatedUnmapped     Truncation = "unknown-code"
	TruncatedNoRule       Truncation = "no-unwind-information"
	TruncatedUnsupported  Truncation = "unwind-information-unsupported"
	TruncatedMemory       Truncation = "stack-memory"
	TruncatedFramePointer Truncation = "no-frame-pointer"
	TruncatedPythonThread Truncation = "python-thread"
	TruncatedPythonMemory Truncation = "python-frames"
)

// truncationTexts are the truncations as the last frame of a stack shows them.
var truncationTexts = map[Truncation]string{
	TruncatedLimit:        "too many frames",
	TruncatedNotReady:     "unwind table not ready yet",
	TruncatedUnmapped:     "code at an unknown address",
	TruncatedNoRule:       "code without unwind information",
	TruncatedUnsupported:  "unwind information not supported",
	TruncatedMemory:       "stack memory not readable",
	TruncatedFramePointer: "no frame pointer",
	TruncatedPythonThread: "Python thread not found",
	TruncatedPythonMemory: "Python frames not readable",
}

// String is the truncation as Stack.Truncated has it.
func (t Truncation) String() string { return cmp.Or(truncationTexts[t], string(t)) }

// TruncatedUnknown is Stack.Truncated of a stack that the kernel has not reported, or not kept.
const TruncatedUnknown = "not reported, or too many distinct stacks"

// TruncatedFrame is the last frame of a truncated stack. It names the reason, in brackets.
func (s *Stack) TruncatedFrame() Frame { return Frame{Function: truncatedPrefix + s.Truncated + "]"} }

// LostFrame is the only frame of a stack that was lost. It names the reason, in brackets.
func (s *Stack) LostFrame() Frame {
	if s.Truncated != "" {
		return Frame{Function: lostPrefix + s.Truncated + "]"}
	}
	return Frame{Function: unknownStack}
}

// IsLostFrame reports whether a function is the one of a LostFrame, which is no call site.
func IsLostFrame(function string) bool {
	return function == unknownStack || strings.HasPrefix(function, lostPrefix)
}

var (
	ownFrames = []string{
		RootRetained, RootUnclassified, RootMetadata, RootUnknownSite, RootGrowth, RootBeforeTracing,
		RootStart, RootOlder, RootMapped, RootUnobserved, RootPython, RootStacks, RootJIT, RootKernel, RootCopied,
		RootInherited, RootSwapped, RootUnexplained, RootCudaBeforeTracing, RootCudaUntraced,
		RootCudaCached, RootCudaPinned, RootCudaReturnable, RootCudaPools, RootNotAttributed, FramesLeftOut, FrameUnknownCaller, FramePythonGone,
		unknownStack,
	}
	unknownFrame = regexp.MustCompile(`^\[unknown\]\+0x[0-9a-f]+$`)
)

// IsOwnFrame reports whether a function is one of the roots and frames above: nothing in it is from
// the process.
func IsOwnFrame(function string) bool {
	for _, prefix := range []string{lostPrefix, truncatedPrefix} {
		if reasons, ok := strings.CutPrefix(function, prefix); ok {
			return areTruncations(strings.TrimSuffix(reasons, "]"))
		}
	}
	return slices.Contains(ownFrames, function) || unknownFrame.MatchString(function)
}

func areTruncations(reasons string) bool {
	if reasons == TruncatedUnknown { // which has a comma itself
		return true
	}
	known := slices.Collect(maps.Values(truncationTexts))
	for reason := range strings.SplitSeq(reasons, ", ") {
		if !slices.Contains(known, reason) {
			return false
		}
	}
	return true
}
