// Package probe decides which instruction of which function of which library is probed, and attaches the programs there.
package probe

import (
	"strings"

	"github.com/allocscope/allocscope/bpf"
)

// A Function is an allocator function by its exported name.
type Function struct {
	Name string
	// Form says how it takes its arguments; it becomes the cookie of the probe.
	Form bpf.KernelCallForm
	// Throws: it may throw an exception, which finds no way through a return probe. One of an allocator is followed by probes
	// of the instructions that return from it.
	Throws bool
	// Differs: what it asks another of the allocator's functions for is not what it is asked for, or that one's result is
	// not its own: it is probed though it does nothing but call others.
	Differs bool
	// Tensor: it is probed for source tensor.
	Tensor bool
	// Arguments is the number of argument registers that must be intact where it is probed.
	Arguments int
}

// returns reports whether its return is of interest and can be probed as such.
func (f Function) returns() bool {
	return f.Form != bpf.KernelCallFormCALL_FREE && f.Form != bpf.KernelCallFormCALL_EXIT && !f.Throws
}

// aligns reports whether it gives aligned memory as asked for, and never throws.
func (f Function) aligns() bool {
	switch f.Form {
	case bpf.KernelCallFormCALL_POSIX_MEMALIGN, bpf.KernelCallFormCALL_MEMALIGN, bpf.KernelCallFormCALL_VALLOC:
		return strings.Contains(f.Name, "align") && !f.Throws
	}
	return false
}

// Functions of a malloc implementation (malloc(3), posix_memalign(3)). free comes first: an allocation must not be seen
// before its release can be.
var Functions = []Function{
	{Name: "free", Form: bpf.KernelCallFormCALL_FREE, Arguments: 1},
	{Name: "malloc", Form: bpf.KernelCallFormCALL_MALLOC, Arguments: 1},
	{Name: "calloc", Form: bpf.KernelCallFormCALL_CALLOC, Arguments: 2},
	{Name: "realloc", Form: bpf.KernelCallFormCALL_REALLOC, Arguments: 2},
	{Name: "reallocarray", Form: bpf.KernelCallFormCALL_REALLOCARRAY, Arguments: 3},
	{Name: "posix_memalign", Form: bpf.KernelCallFormCALL_POSIX_MEMALIGN, Arguments: 3},
	{Name: "aligned_alloc", Form: bpf.KernelCallFormCALL_MEMALIGN, Arguments: 2},
	{Name: "memalign", Form: bpf.KernelCallFormCALL_MEMALIGN, Arguments: 2},
	{Name: "valloc", Form: bpf.KernelCallFormCALL_VALLOC, Arguments: 1},
	{Name: "pvalloc", Form: bpf.KernelCallFormCALL_VALLOC, Arguments: 1, Differs: true},
}
