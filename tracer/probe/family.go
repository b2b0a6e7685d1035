package probe

import (
	"slices"

	"github.com/allocscope/allocscope/bpf"
)

// A family is the functions of one allocator under names of its own. They are looked for in all files: other libraries may
// use another malloc.
type family struct {
	// release is a function without which none of them is probed: what cannot be seen being freed would look like a leak.
	release   string
	functions []Function
}

var families = []family{
	{"dallocx", jemalloc("")},
	{"je_free", slices.Concat(prefixed("je_"), jemalloc("je_"))},
	{"_rjem_free", slices.Concat(prefixed("_rjem_"), jemalloc("_rjem_"))}, // tikv-jemallocator, of Rust
	{"tc_free", tcmalloc},
	{"mi_free", mimalloc},
}

// rare are functions that some files have which define free: those of C23, of BSD, and an old name.
var rare = []Function{
	{Name: "free_sized", Form: bpf.KernelCallFormCALL_FREE, Arguments: 1},
	{Name: "free_aligned_sized", Form: bpf.KernelCallFormCALL_FREE, Arguments: 1},
	{Name: "cfree", Form: bpf.KernelCallFormCALL_FREE, Arguments: 1},
	{Name: "reallocf", Form: bpf.KernelCallFormCALL_REALLOCF, Arguments: 2, Differs: true},
}

// operators are C++'s, mangled: m is size_t, and all but the placement ones of a program. Where they call malloc, as those of the
// C++ library do, malloc is probed and they are not.
var operators = slices.Concat(
	deletes("_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t",
		"_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t", "_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t",
		"_ZdlPvSt11align_val_tRKSt9nothrow_t", "_ZdaPvSt11align_val_tRKSt9nothrow_t"),
	news("_Znwm", "_Znam", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t"),
	mallocs("_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t"))

func prefixed(prefix string) []Function {
	functions := slices.Clone(Functions)
	for i := range functions {
		functions[i].Name = prefix + functions[i].Name
	}
	return functions
}

// jemalloc's own interface, jemalloc(3). rallocx leaves the old object as it is when it fails.
func jemalloc(prefix string) []Function {
	return []Function{
		{Name: prefix + "dallocx", Form: bpf.KernelCallFormCALL_FREE, Arguments: 1},
		{Name: prefix + "sdallocx", Form: bpf.KernelCallFormCALL_FREE, Arguments: 1},
		{Name: prefix + "mallocx", Form: bpf.KernelCallFormCALL_MALLOC, Arguments: 1},
		{Name: prefix + "rallocx", Form: bpf.KernelCallFormCALL_REALLOC, Arguments: 2},
		{Name: prefix + "xallocx", Form: bpf.KernelCallFormCALL_XALLOCX, Arguments: 3},
	}
}

// tcmalloc's, <gperftools/tcmalloc.h>.
var tcmalloc = slices.Concat(
	deletes("tc_free", "tc_cfree", "tc_free_sized", "tc_delete", "tc_deletearray", "tc_delete_sized", "tc_deletearray_sized",
		"tc_delete_nothrow", "tc_deletearray_nothrow", "tc_delete_aligned", "tc_deletearray_aligned", "tc_delete_sized_aligned",
		"tc_deletearray_sized_aligned", "tc_delete_aligned_nothrow", "tc_deletearray_aligned_nothrow"),
	mallocs("tc_malloc", "tc_malloc_skip_new_handler", "tc_new_nothrow", "tc_newarray_nothrow", "tc_new_aligned_nothrow",
		"tc_newarray_aligned_nothrow"),
	news("tc_new", "tc_newarray", "tc_new_aligned", "tc_newarray_aligned"),
	[]Function{
		{Name: "tc_calloc", Form: bpf.KernelCallFormCALL_CALLOC, Arguments: 2},
		{Name: "tc_realloc", Form: bpf.KernelCallFormCALL_REALLOC, Arguments: 2},
		{Name: "tc_posix_memalign", Form: bpf.KernelCallFormCALL_POSIX_MEMALIGN, Arguments: 3},
		{Name: "tc_memalign", Form: bpf.KernelCallFormCALL_MEMALIGN, Arguments: 2},
		{Name: "tc_valloc", Form: bpf.KernelCallFormCALL_VALLOC, Arguments: 1},
		{Name: "tc_pvalloc", Form: bpf.KernelCallFormCALL_VALLOC, Arguments: 1, Differs: true},
	})

func deletes(names ...string) []Function { return all(bpf.KernelCallFormCALL_FREE, 1, names) }

func mallocs(names ...string) []Function { return all(bpf.KernelCallFormCALL_MALLOC, 1, names) }

func news(names ...string) []Function { return throwing(bpf.KernelCallFormCALL_VALLOC, 1, names...) }

func throwing(form bpf.KernelCallForm, arguments int, names ...string) []Function {
	functions := all(form, arguments, names)
	for i := range functions {
		functions[i].Throws = true
	}
	return functions
}

// all functions take their arguments in the same way.
func all(form bpf.KernelCallForm, arguments int, names []string) []Function {
	var functions []Function
	for _, name := range names {
		functions = append(functions, Function{Name: name, Form: form, Arguments: arguments})
	}
	return functions
}
