// Package probe decides which instruction of which function of which library is probed, and attaches the programs there.
package probe

import "github.com/allocscope/allocscope/bpf"

// A Function is an allocator function by its exported name.
type Function struct {
	Name string
	// Form says how it takes its arguments; it becomes the cookie of the probe.
	Form bpf.KernelCallForm
	// Arguments is the number of argument registers that must be intact where it is probed.
	Arguments int
}

// Functions of a malloc implementation (malloc(3), posix_memalign(3)). free comes first: an allocation must not be seen
// before its release can be.
var Functions = []Function{
	{"free", bpf.KernelCallFormCALL_FREE, 1},
	{"malloc", bpf.KernelCallFormCALL_MALLOC, 1},
	{"calloc", bpf.KernelCallFormCALL_CALLOC, 2},
	{"realloc", bpf.KernelCallFormCALL_REALLOC, 2},
	{"reallocarray", bpf.KernelCallFormCALL_REALLOCARRAY, 3},
	{"posix_memalign", bpf.KernelCallFormCALL_POSIX_MEMALIGN, 3},
	{"aligned_alloc", bpf.KernelCallFormCALL_MEMALIGN, 2},
	{"memalign", bpf.KernelCallFormCALL_MEMALIGN, 2},
	{"valloc", bpf.KernelCallFormCALL_VALLOC, 1},
	{"pvalloc", bpf.KernelCallFormCALL_VALLOC, 1},
}
