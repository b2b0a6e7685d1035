/* Calls every function of the C library's allocator interface, and with JEMALLOC, TCMALLOC or MIMALLOC defined those
 * that this allocator has besides. */
#define _GNU_SOURCE
#include <malloc.h>
#include "allocators.h"

// clang-format off
static void *aligned(size_t alignment, size_t size) { void *p; return posix_memalign(&p, alignment, size) ? NULL : p; }

CASE(malloc, 101, malloc(101), free(p))
CASE(malloc_large, 3000001, malloc(3000001), free(p))
CASE(calloc, 7 * 33, calloc(7, 33), free(p))
CASE(aligned_alloc, 640, aligned_alloc(64, 640), free(p))
CASE(posix_memalign, 504, aligned(4096, 504), free(p))
CASE(memalign, 641, memalign(32, 641), free(p))
CASE(reallocarray_null, 77, reallocarray(NULL, 7, 11), free(p))
CHANGE(realloc, 700, malloc(SMALL), realloc(p, 700))
CHANGE(realloc_large, 5000000, malloc(SMALL), realloc(p, 5000000))
CHANGE(realloc_shrink, 20, malloc(SMALL), realloc(p, 20))
CHANGE(realloc_fails, SMALL, malloc(SMALL), realloc(p, HUGE_SIZE) ? NULL : p)
CHANGE(reallocarray, 700, malloc(SMALL), reallocarray(p, 70, 10))
#ifdef __GLIBC__
CASE(valloc, 642, valloc(642), free(p))
#endif

static void run_libc(void)
{
	case_malloc(), case_malloc_large(), case_calloc(), case_aligned_alloc(), case_posix_memalign(), case_memalign();
	case_reallocarray_null(), case_realloc(), case_realloc_large(), case_realloc_shrink(), case_realloc_fails();
	case_reallocarray();
#ifdef __GLIBC__
	case_valloc();
#endif
}

#if defined(JEMALLOC)
#include <jemalloc/jemalloc.h>

CASE(mallocx, 105, mallocx(105, 0), dallocx(p, 0))
CASE(mallocx_aligned, 106, mallocx(106, MALLOCX_ALIGN(64)), sdallocx(p, 106, MALLOCX_ALIGN(64)))
CASE(malloc_sdallocx, 107, malloc(107), sdallocx(p, 107, 0))
CASE(mallocx_free, 108, mallocx(108, MALLOCX_ZERO), free(p))
CHANGE(rallocx, 900, mallocx(SMALL, 0), rallocx(p, 900, 0))
CHANGE(rallocx_fails, SMALL, mallocx(SMALL, 0), rallocx(p, HUGE_SIZE, 0) ? NULL : p)
CHANGE(xallocx_shrinks, 40, mallocx(SMALL, 0), xallocx(p, 40, 0, 0) ? p : NULL)
CHANGE(xallocx_extra, 47, mallocx(SMALL, 0), xallocx(p, 40, 7, 0) ? p : NULL)
CHANGE(xallocx_fails, SMALL, mallocx(SMALL, 0), xallocx(p, 4000, 0, 0) < 4000 ? p : NULL)

static void run_own(void)
{
	case_mallocx(), case_mallocx_aligned(), case_malloc_sdallocx(), case_mallocx_free();
	case_rallocx(), case_rallocx_fails(), case_xallocx_shrinks(), case_xallocx_extra(), case_xallocx_fails();
}
#elif defined(TCMALLOC)
#include <gperftools/tcmalloc.h>

static void *tc_aligned(size_t alignment, size_t size) { void *p; return tc_posix_memalign(&p, alignment, size) ? NULL : p; }

CASE(tc_malloc, 110, tc_malloc(110), tc_free(p))
CASE(tc_malloc_sized, 111, tc_malloc(111), tc_free_sized(p, 111))
CASE(tc_malloc_skip_new_handler, 112, tc_malloc_skip_new_handler(112), free(p))
CASE(tc_calloc, 226, tc_calloc(2, 113), tc_cfree(p))
CASE(tc_memalign, 114, tc_memalign(64, 114), tc_free(p))
CASE(tc_posix_memalign, 115, tc_aligned(64, 115), tc_free(p))
CASE(tc_valloc, 116, tc_valloc(116), tc_free(p))
CASE(tc_pvalloc, 117, tc_pvalloc(117), tc_free(p))
CHANGE(tc_realloc, 1200, tc_malloc(SMALL), tc_realloc(p, 1200))
CHANGE(tc_realloc_zero, 0, tc_malloc(SMALL), tc_realloc(p, 0))

static void run_own(void)
{
	case_tc_malloc(), case_tc_malloc_sized(), case_tc_malloc_skip_new_handler(), case_tc_calloc(), case_tc_memalign();
	case_tc_posix_memalign(), case_tc_valloc(), case_tc_pvalloc(), case_tc_realloc(), case_tc_realloc_zero();
}
#elif defined(MIMALLOC)
#include <mimalloc.h>

#define heap mi_heap_get_default()
static void *mi_aligned(size_t alignment, size_t size) { void *p; return mi_posix_memalign(&p, alignment, size) ? NULL : p; }
static void *grown(void *p) { return mi_reallocarr(&p, 30, 30) ? NULL : p; }

CASE(mi_malloc, 201, mi_malloc(201), mi_free(p))
CASE(mi_malloc_large, 3000001, mi_malloc(3000001), mi_free_size(p, 3000001))
CASE(mi_malloc_small, 202, mi_malloc_small(202), mi_free_size(p, 202))
CASE(mi_zalloc_small, 203, mi_zalloc_small(203), mi_free(p))
CASE(mi_zalloc, 204, mi_zalloc(204), mi_free(p))
CASE(mi_calloc, 410, mi_calloc(2, 205), mi_cfree(p))
CASE(mi_mallocn, 412, mi_mallocn(2, 206), mi_free(p))
CASE(mi_malloc_aligned, 207, mi_malloc_aligned(207, 64), mi_free_aligned(p, 64))
CASE(mi_malloc_aligned_at, 208, mi_malloc_aligned_at(208, 64, 8), mi_free_size_aligned(p, 208, 64))
CASE(mi_zalloc_aligned, 209, mi_zalloc_aligned(209, 64), mi_free(p))
CASE(mi_zalloc_aligned_at, 210, mi_zalloc_aligned_at(210, 64, 8), mi_free(p))
CASE(mi_calloc_aligned, 422, mi_calloc_aligned(2, 211, 64), mi_free(p))
CASE(mi_calloc_aligned_at, 424, mi_calloc_aligned_at(2, 212, 64, 8), mi_free(p))
CASE(mi_posix_memalign, 213, mi_aligned(64, 213), mi_free(p))
CASE(mi_memalign, 214, mi_memalign(64, 214), mi_free(p))
CASE(mi_aligned_alloc, 256, mi_aligned_alloc(64, 256), mi_free(p))
CASE(mi_valloc, 215, mi_valloc(215), mi_free(p))
CASE(mi_pvalloc, 4095, mi_pvalloc(4095), mi_free(p))
CASE(mi_new, 216, mi_new(216), mi_free(p))
CASE(mi_new_nothrow, 217, mi_new_nothrow(217), mi_free(p))
CASE(mi_new_aligned, 218, mi_new_aligned(218, 64), mi_free(p))
CASE(mi_new_aligned_nothrow, 219, mi_new_aligned_nothrow(219, 64), mi_free(p))
CASE(mi_new_n, 440, mi_new_n(2, 220), mi_free(p))
CASE(mi_heap_malloc, 221, mi_heap_malloc(heap, 221), mi_free(p))
CASE(mi_heap_zalloc, 222, mi_heap_zalloc(heap, 222), mi_free(p))
CASE(mi_heap_malloc_small, 223, mi_heap_malloc_small(heap, 223), mi_free(p))
CASE(mi_heap_calloc, 448, mi_heap_calloc(heap, 2, 224), mi_free(p))
CASE(mi_heap_mallocn, 450, mi_heap_mallocn(heap, 2, 225), mi_free(p))
CASE(mi_heap_malloc_aligned, 226, mi_heap_malloc_aligned(heap, 226, 64), mi_free(p))
CASE(mi_heap_malloc_aligned_small, 64, mi_heap_malloc_aligned(heap, 64, 64), mi_free(p))
CASE(mi_heap_calloc_aligned, 454, mi_heap_calloc_aligned(heap, 2, 227, 64), mi_free(p))
CHANGE(mi_realloc, 1200, mi_malloc(SMALL), mi_realloc(p, 1200))
CHANGE(mi_realloc_fails, SMALL, mi_malloc(SMALL), mi_realloc(p, HUGE_SIZE) ? NULL : p)
CHANGE(mi_reallocf, 1201, mi_malloc(SMALL), mi_reallocf(p, 1201))
CHANGE(mi_reallocf_fails, 0, mi_malloc(SMALL), mi_reallocf(p, HUGE_SIZE))
CHANGE(mi_reallocn, 1210, mi_malloc(SMALL), mi_reallocn(p, 10, 121))
CHANGE(mi_reallocarray, 1220, mi_malloc(SMALL), mi_reallocarray(p, 10, 122))
CHANGE(mi_reallocarr, 900, mi_malloc(SMALL), grown(p))
CHANGE(mi_rezalloc, 1230, mi_zalloc(SMALL), mi_rezalloc(p, 1230))
CHANGE(mi_recalloc, 1240, mi_zalloc(SMALL), mi_recalloc(p, 10, 124))
CHANGE(mi_expand, 40, mi_malloc(SMALL), mi_expand(p, 40))
CHANGE(mi_expand_fails, SMALL, mi_malloc(SMALL), mi_expand(p, 4000) ? NULL : p)
CHANGE(mi_realloc_aligned, 1250, mi_malloc(SMALL), mi_realloc_aligned(p, 1250, 64))
CHANGE(mi_rezalloc_aligned, 1260, mi_zalloc(SMALL), mi_rezalloc_aligned(p, 1260, 64))
CHANGE(mi_recalloc_aligned, 1270, mi_zalloc(SMALL), mi_recalloc_aligned(p, 10, 127, 64))
CHANGE(mi_new_realloc, 1280, mi_malloc(SMALL), mi_new_realloc(p, 1280))
CHANGE(mi_new_reallocn, 1290, mi_malloc(SMALL), mi_new_reallocn(p, 10, 129))
CHANGE(mi_heap_realloc, 1300, mi_malloc(SMALL), mi_heap_realloc(heap, p, 1300))
CHANGE(mi_heap_reallocn, 1310, mi_malloc(SMALL), mi_heap_reallocn(heap, p, 10, 131))
CHANGE(mi_heap_reallocf, 1320, mi_malloc(SMALL), mi_heap_reallocf(heap, p, 1320))
CHANGE(mi_heap_reallocf_fails, 0, mi_malloc(SMALL), mi_heap_reallocf(heap, p, HUGE_SIZE))
CHANGE(mi_heap_recalloc, 1330, mi_zalloc(SMALL), mi_heap_recalloc(heap, p, 10, 133))
CHANGE(mi_heap_realloc_aligned, 1340, mi_malloc(SMALL), mi_heap_realloc_aligned(heap, p, 1340, 64))

static void run_own(void)
{
	case_mi_malloc(), case_mi_malloc_large(), case_mi_malloc_small(), case_mi_zalloc_small(), case_mi_zalloc();
	case_mi_calloc(), case_mi_mallocn(), case_mi_malloc_aligned(), case_mi_malloc_aligned_at(), case_mi_zalloc_aligned();
	case_mi_zalloc_aligned_at(), case_mi_calloc_aligned(), case_mi_calloc_aligned_at(), case_mi_posix_memalign();
	case_mi_memalign(), case_mi_aligned_alloc(), case_mi_valloc(), case_mi_pvalloc(), case_mi_new(), case_mi_new_nothrow();
	case_mi_new_aligned(), case_mi_new_aligned_nothrow(), case_mi_new_n(), case_mi_heap_malloc(), case_mi_heap_zalloc();
	case_mi_heap_malloc_small(), case_mi_heap_calloc(), case_mi_heap_mallocn(), case_mi_heap_malloc_aligned();
	case_mi_heap_malloc_aligned_small(), case_mi_heap_calloc_aligned(), case_mi_realloc(), case_mi_realloc_fails();
	case_mi_reallocf(), case_mi_reallocf_fails(), case_mi_reallocn(), case_mi_reallocarray(), case_mi_reallocarr();
	case_mi_rezalloc(), case_mi_recalloc(), case_mi_expand(), case_mi_expand_fails(), case_mi_realloc_aligned();
	case_mi_rezalloc_aligned(), case_mi_recalloc_aligned(), case_mi_new_realloc(), case_mi_new_reallocn();
	case_mi_heap_realloc(), case_mi_heap_reallocn(), case_mi_heap_reallocf(), case_mi_heap_reallocf_fails();
	case_mi_heap_recalloc(), case_mi_heap_realloc_aligned();
}
#else
static void run_own(void) {}
#endif
// clang-format on

static void run_cases(void)
{
	run_libc();
	run_own();
}
