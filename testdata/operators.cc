/* Calls every operator new and delete: see allocators.h. With an argument it makes some throw. */
#include <new>

#include "allocators.h"

// clang-format off
#define BIG std::align_val_t(64)

CASE(new, 301, ::operator new(301), ::operator delete(p))
CASE(new_sized, 302, ::operator new(302), ::operator delete(p, size_t(302)))
CASE(new_large, 3000001, ::operator new(3000001), ::operator delete(p, size_t(3000001)))
CASE(new_array, 303, ::operator new[](303), ::operator delete[](p))
CASE(new_array_sized, 304, ::operator new[](304), ::operator delete[](p, size_t(304)))
CASE(new_nothrow, 305, ::operator new(305, std::nothrow), ::operator delete(p, std::nothrow))
CASE(new_array_nothrow, 306, ::operator new[](306, std::nothrow), ::operator delete[](p, std::nothrow))
CASE(new_aligned, 320, ::operator new(320, BIG), ::operator delete(p, BIG))
CASE(new_aligned_sized, 384, ::operator new(384, BIG), ::operator delete(p, size_t(384), BIG))
CASE(new_array_aligned, 448, ::operator new[](448, BIG), ::operator delete[](p, BIG))
CASE(new_array_aligned_sized, 512, ::operator new[](512, BIG), ::operator delete[](p, size_t(512), BIG))
CASE(new_aligned_nothrow, 576, ::operator new(576, BIG, std::nothrow), ::operator delete(p, BIG, std::nothrow))
CASE(new_array_aligned_nothrow, 640, ::operator new[](640, BIG, std::nothrow), ::operator delete[](p, BIG, std::nothrow))
CASE(new_free, 313, ::operator new(313), free(p))
CASE(new_again, 315, ::operator new(315), ::operator delete(p))
CASE(malloc_delete, 314, malloc(314), ::operator delete(p))
// clang-format on

/* The exception is found: a return probe at the operator would have ended the process. */
__attribute__((noinline)) static void case_throws(void)
{
	int caught = 0;

	for (int i = 0; i < CALLS; i++) {
		try {
			void *p = ::operator new(HUGE_SIZE);
			__asm__ volatile("" : "+r"(p) : : "memory");
		} catch (const std::bad_alloc &) {
			caught++;
		}
	}
	expect(caught == CALLS, "operator new throws");
	allocations += 2 * CALLS; /* and the exceptions */
	frees += CALLS;
}

static void run_cases(void)
{
	case_new(), case_new_sized(), case_new_large(), case_new_array(), case_new_array_sized(), case_new_nothrow();
	case_new_array_nothrow(), case_new_aligned(), case_new_aligned_sized(), case_new_array_aligned();
	case_new_array_aligned_sized(), case_new_aligned_nothrow(), case_new_array_aligned_nothrow();
	case_new_free(), case_malloc_delete();
	if (has_argument)
		case_throws();
	case_new_again();
}
