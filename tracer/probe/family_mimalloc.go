package probe

import (
	"slices"

	"github.com/allocscope/allocscope/bpf"
)

// mimalloc's, <mimalloc.h>. Left out are those that in all versions only call one of these: mi_cfree, mi_reallocarr,
// mi_new_realloc and its relatives, mi_realpath; and mi_strdup and mi_strndup, of which the size is not among the arguments.
var mimalloc = slices.Concat(
	deletes("mi_free", "mi_free_size", "mi_free_aligned", "mi_free_size_aligned"),
	mallocs("mi_malloc", "mi_zalloc", "mi_malloc_small", "mi_zalloc_small", "mi_new_nothrow"),
	all(bpf.KernelCallFormCALL_VALLOC, 1, []string{
		"mi_malloc_aligned", "mi_malloc_aligned_at", "mi_zalloc_aligned", "mi_zalloc_aligned_at",
		"mi_new_aligned_nothrow", "mi_valloc",
	}),
	all(bpf.KernelCallFormCALL_CALLOC, 2, []string{"mi_calloc", "mi_mallocn", "mi_calloc_aligned", "mi_calloc_aligned_at"}),
	all(bpf.KernelCallFormCALL_REALLOC, 2, []string{
		"mi_realloc", "mi_rezalloc", "mi_realloc_aligned", "mi_realloc_aligned_at", "mi_rezalloc_aligned",
		"mi_rezalloc_aligned_at", "mi_expand",
	}),
	all(bpf.KernelCallFormCALL_REALLOCARRAY, 3, []string{
		"mi_reallocn", "mi_reallocarray", "mi_recalloc", "mi_recalloc_aligned", "mi_recalloc_aligned_at",
	}),
	all(bpf.KernelCallFormCALL_POSIX_MEMALIGN, 3, []string{"mi_posix_memalign"}),
	all(bpf.KernelCallFormCALL_MEMALIGN, 2, []string{
		"mi_memalign", "mi_aligned_alloc", "mi_heap_malloc", "mi_heap_zalloc", "mi_heap_malloc_small", "mi_heap_malloc_aligned",
		"mi_heap_malloc_aligned_at", "mi_heap_zalloc_aligned", "mi_heap_zalloc_aligned_at",
	}),
	all(bpf.KernelCallFormCALL_HEAP_CALLOC, 3, []string{
		"mi_heap_calloc", "mi_heap_mallocn", "mi_heap_calloc_aligned", "mi_heap_calloc_aligned_at",
	}),
	all(bpf.KernelCallFormCALL_HEAP_REALLOC, 3, []string{
		"mi_heap_realloc", "mi_heap_rezalloc", "mi_heap_realloc_aligned", "mi_heap_realloc_aligned_at",
		"mi_heap_rezalloc_aligned", "mi_heap_rezalloc_aligned_at",
	}),
	all(bpf.KernelCallFormCALL_HEAP_REALLOCARRAY, 4, []string{
		"mi_heap_reallocn", "mi_heap_recalloc", "mi_heap_recalloc_aligned", "mi_heap_recalloc_aligned_at",
	}),
	news("mi_new", "mi_new_aligned"),
	throwing(bpf.KernelCallFormCALL_CALLOC, 2, "mi_new_n"),
	throwing(bpf.KernelCallFormCALL_MEMALIGN, 2, "mi_heap_alloc_new"),
	throwing(bpf.KernelCallFormCALL_HEAP_CALLOC, 3, "mi_heap_alloc_new_n"),
	[]Function{
		{Name: "mi_pvalloc", Form: bpf.KernelCallFormCALL_VALLOC, Arguments: 1, Differs: true},
		{Name: "mi_reallocf", Form: bpf.KernelCallFormCALL_REALLOCF, Arguments: 2, Differs: true},
		{Name: "mi_heap_reallocf", Form: bpf.KernelCallFormCALL_HEAP_REALLOCF, Arguments: 3, Differs: true},
	},
)
