// Package probe decides at which instructions of which libraries the allocator functions are
// probed, and attaches the BPF programs there.
package probe

import (
	"slices"
	"strings"

	"github.com/allocscope/allocscope/bpf"
)

// A Function is an allocator function by its exported name.
type Function struct {
	Name string
	// Form is the order of its arguments. It becomes a part of the attach cookie.
	Form bpf.CallForm
	// Throws: it may throw a C++ exception. No exception can pass a return probe, so that the
	// instructions that return from the function are probed instead.
	Throws bool
	// Exits: its return is followed by the instructions that return, not by a return probe.
	Exits bool
	// AlwaysProbed: it is probed even if it only calls other allocator functions, because its size
	// or its result differs from theirs.
	AlwaysProbed bool
	// Tensor: it is probed for source tensor.
	Tensor bool
	// Arguments is the number of argument registers that must be intact where it is probed.
	Arguments int
}

// returns reports whether the function has a return probe.
func (f Function) returns() bool {
	return f.Form != bpf.CallFree && !f.isExit() && !f.Throws && !f.Exits
}

// isExit reports whether this is an instruction that returns from a function with Exits.
func (f Function) isExit() bool {
	return f.Form == bpf.CallExit || f.Form == bpf.CallExitMemset
}

// isCUDA reports whether the function is one of CUDA's driver.
func (f Function) isCUDA() bool { return f.Form >= bpf.CallCudaAllocate }

// resizes reports whether the function frees an object, or changes its size, and may fail.
func (f Function) resizes() bool {
	switch f.Form {
	case bpf.CallRealloc, bpf.CallReallocarray, bpf.CallReallocf, bpf.CallXallocx,
		bpf.CallHeapRealloc, bpf.CallHeapReallocarray, bpf.CallHeapReallocf:
		return true
	}
	return false
}

// aligns reports whether the function returns memory with a requested alignment, and never throws.
func (f Function) aligns() bool {
	switch f.Form {
	case bpf.CallPosixMemalign, bpf.CallMemalign,
		bpf.CallValloc:
		return strings.Contains(f.Name, "align") && !f.Throws
	}
	return false
}

// Functions of a malloc implementation, malloc(3) and posix_memalign(3). free comes first: no
// allocation may be seen before its release can be.
var Functions = []Function{
	{Name: "free", Form: bpf.CallFree, Arguments: 1},
	{Name: "malloc", Form: bpf.CallMalloc, Arguments: 1},
	{Name: "calloc", Form: bpf.CallCalloc, Arguments: 2},
	{Name: "realloc", Form: bpf.CallRealloc, Arguments: 2},
	{Name: "reallocarray", Form: bpf.CallReallocarray, Arguments: 3},
	{Name: "posix_memalign", Form: bpf.CallPosixMemalign, Arguments: 3},
	{Name: "aligned_alloc", Form: bpf.CallMemalign, Arguments: 2},
	{Name: "memalign", Form: bpf.CallMemalign, Arguments: 2},
	{Name: "valloc", Form: bpf.CallValloc, Arguments: 1},
	{Name: "pvalloc", Form: bpf.CallValloc, Arguments: 1, AlwaysProbed: true},
}

// optional functions are from C23 and BSD, or have an old name. They are probed in the file that
// defines free.
var optional = []Function{
	{Name: "free_sized", Form: bpf.CallFree, Arguments: 1},
	{Name: "free_aligned_sized", Form: bpf.CallFree, Arguments: 1},
	{Name: "cfree", Form: bpf.CallFree, Arguments: 1},
	{Name: "reallocf", Form: bpf.CallReallocf, Arguments: 2, AlwaysProbed: true},
}

// operators are the replaceable operators new and delete of C++ by their mangled names, where m is
// size_t: https://en.cppreference.com/w/cpp/memory/new. Where they call malloc, as in libstdc++,
// malloc is probed instead.
var operators = slices.Concat(
	withForm(bpf.CallFree, 1,
		"_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t",
		"_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t",
		"_ZdlPvmSt11align_val_t", "_ZdaPvmSt11align_val_t",
		"_ZdlPvSt11align_val_tRKSt9nothrow_t", "_ZdaPvSt11align_val_tRKSt9nothrow_t"),
	throwing(bpf.CallValloc, 1,
		"_Znwm", "_Znam", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t"),
	withForm(bpf.CallMalloc, 1,
		"_ZnwmRKSt9nothrow_t", "_ZnamRKSt9nothrow_t",
		"_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t"),
)

// An allocatorAPI is the functions of an allocator under names of its own. They are looked up in
// all files, because other libraries of the process may use another malloc.
type allocatorAPI struct {
	// release is the function without which none is probed: frees that cannot be seen would look
	// like a leak.
	release   string
	functions []Function
}

var allocatorAPIs = []allocatorAPI{
	{"dallocx", jemalloc("")},
	{"je_free", slices.Concat(prefixed("je_"), jemalloc("je_"))},
	{"je_arrow_free", slices.Concat(prefixed("je_arrow_"), jemalloc("je_arrow_"))},
	// The Rust crate tikv-jemallocator.
	{"_rjem_free", slices.Concat(prefixed("_rjem_"), jemalloc("_rjem_"))},
	{"tc_free", tcmalloc},
	{"mi_free", mimalloc},
}

// prefixed are Functions with a prefix of their names.
func prefixed(prefix string) []Function {
	functions := slices.Clone(Functions)
	for i := range functions {
		functions[i].Name = prefix + functions[i].Name
	}
	return functions
}

// jemalloc is the non-standard API of jemalloc(3). rallocx leaves the old object as it is when it
// fails, like realloc.
func jemalloc(prefix string) []Function {
	return []Function{
		{Name: prefix + "dallocx", Form: bpf.CallFree, Arguments: 1},
		{Name: prefix + "sdallocx", Form: bpf.CallFree, Arguments: 1},
		{Name: prefix + "mallocx", Form: bpf.CallMalloc, Arguments: 1},
		{Name: prefix + "rallocx", Form: bpf.CallRealloc, Arguments: 2},
		{Name: prefix + "xallocx", Form: bpf.CallXallocx, Arguments: 3},
	}
}

// tcmalloc is the API of <gperftools/tcmalloc.h>.
var tcmalloc = slices.Concat(
	withForm(bpf.CallFree, 1,
		"tc_free", "tc_cfree", "tc_free_sized", "tc_delete", "tc_deletearray",
		"tc_delete_sized", "tc_deletearray_sized", "tc_delete_nothrow", "tc_deletearray_nothrow",
		"tc_delete_aligned", "tc_deletearray_aligned",
		"tc_delete_sized_aligned", "tc_deletearray_sized_aligned",
		"tc_delete_aligned_nothrow", "tc_deletearray_aligned_nothrow"),
	withForm(bpf.CallMalloc, 1,
		"tc_malloc", "tc_malloc_skip_new_handler", "tc_new_nothrow", "tc_newarray_nothrow",
		"tc_new_aligned_nothrow", "tc_newarray_aligned_nothrow"),
	throwing(bpf.CallValloc, 1,
		"tc_new", "tc_newarray", "tc_new_aligned", "tc_newarray_aligned"),
	[]Function{
		{Name: "tc_calloc", Form: bpf.CallCalloc, Arguments: 2},
		{Name: "tc_realloc", Form: bpf.CallRealloc, Arguments: 2},
		{Name: "tc_posix_memalign", Form: bpf.CallPosixMemalign, Arguments: 3},
		{Name: "tc_memalign", Form: bpf.CallMemalign, Arguments: 2},
		{Name: "tc_valloc", Form: bpf.CallValloc, Arguments: 1},
		{Name: "tc_pvalloc", Form: bpf.CallValloc, Arguments: 1, AlwaysProbed: true},
	},
)

// mimalloc is the API of <mimalloc.h>. Functions that in all versions only call one of these are
// left out: mi_cfree, mi_reallocarr, mi_new_realloc and its relatives, mi_realpath. So are
// mi_strdup and mi_strndup, whose size is no argument.
var mimalloc = slices.Concat(
	withForm(bpf.CallFree, 1,
		"mi_free", "mi_free_size", "mi_free_aligned", "mi_free_size_aligned"),
	withForm(bpf.CallMalloc, 1,
		"mi_malloc", "mi_zalloc", "mi_malloc_small", "mi_zalloc_small", "mi_new_nothrow"),
	withForm(bpf.CallValloc, 1,
		"mi_malloc_aligned", "mi_malloc_aligned_at", "mi_zalloc_aligned", "mi_zalloc_aligned_at",
		"mi_new_aligned_nothrow", "mi_valloc"),
	withForm(bpf.CallCalloc, 2,
		"mi_calloc", "mi_mallocn", "mi_calloc_aligned", "mi_calloc_aligned_at"),
	withForm(bpf.CallRealloc, 2,
		"mi_realloc", "mi_rezalloc", "mi_realloc_aligned", "mi_realloc_aligned_at",
		"mi_rezalloc_aligned", "mi_rezalloc_aligned_at", "mi_expand"),
	withForm(bpf.CallReallocarray, 3,
		"mi_reallocn", "mi_reallocarray", "mi_recalloc", "mi_recalloc_aligned",
		"mi_recalloc_aligned_at"),
	withForm(bpf.CallPosixMemalign, 3, "mi_posix_memalign"),
	withForm(bpf.CallMemalign, 2,
		"mi_memalign", "mi_aligned_alloc", "mi_heap_malloc", "mi_heap_zalloc",
		"mi_heap_malloc_small", "mi_heap_malloc_aligned", "mi_heap_malloc_aligned_at",
		"mi_heap_zalloc_aligned", "mi_heap_zalloc_aligned_at"),
	withForm(bpf.CallHeapCalloc, 3,
		"mi_heap_calloc", "mi_heap_mallocn", "mi_heap_calloc_aligned",
		"mi_heap_calloc_aligned_at"),
	withForm(bpf.CallHeapRealloc, 3,
		"mi_heap_realloc", "mi_heap_rezalloc", "mi_heap_realloc_aligned",
		"mi_heap_realloc_aligned_at", "mi_heap_rezalloc_aligned", "mi_heap_rezalloc_aligned_at"),
	withForm(bpf.CallHeapReallocarray, 4,
		"mi_heap_reallocn", "mi_heap_recalloc", "mi_heap_recalloc_aligned",
		"mi_heap_recalloc_aligned_at"),
	throwing(bpf.CallValloc, 1, "mi_new", "mi_new_aligned"),
	throwing(bpf.CallCalloc, 2, "mi_new_n"),
	throwing(bpf.CallMemalign, 2, "mi_heap_alloc_new"),
	throwing(bpf.CallHeapCalloc, 3, "mi_heap_alloc_new_n"),
	[]Function{
		{Name: "mi_pvalloc", Form: bpf.CallValloc, Arguments: 1, AlwaysProbed: true},
		{Name: "mi_reallocf", Form: bpf.CallReallocf, Arguments: 2, AlwaysProbed: true},
		{
			Name: "mi_heap_reallocf", Form: bpf.CallHeapReallocf, Arguments: 3,
			AlwaysProbed: true,
		},
	},
)

// withForm returns functions of one form.
func withForm(form bpf.CallForm, arguments int, names ...string) []Function {
	var functions []Function
	for _, name := range names {
		functions = append(functions, Function{Name: name, Form: form, Arguments: arguments})
	}
	return functions
}

// throwing returns functions of one form that may throw.
func throwing(form bpf.CallForm, arguments int, names ...string) []Function {
	functions := withForm(form, arguments, names...)
	for i := range functions {
		functions[i].Throws, functions[i].Exits = true, true
	}
	return functions
}
