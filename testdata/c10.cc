// A library with the functions by which torch allocates for tensors. -DPARAMETERS gives them others than torch's have today,
// and -DWITHOUT leaves them out.
#include <cstddef>
#include <cstdlib>

#define NOINLINE __attribute__((noinline))

static void *aligned(size_t size)
{
	void *block;

	return !size || posix_memalign(&block, 64, size) ? nullptr : block;
}

namespace c10 {
#ifdef PARAMETERS
NOINLINE void *alloc_cpu(size_t size, bool) { return aligned(size); }
NOINLINE void free_cpu(void *pointer, size_t) { free(pointer); }
static void *allocate(size_t size) { return alloc_cpu(size, false); }
static void release(void *pointer) { free_cpu(pointer, 1); }
#else
#ifdef WITHOUT
#define NAMED static
#else
#define NAMED
#endif
NAMED NOINLINE void *alloc_cpu(size_t size) { return aligned(size); }
NAMED NOINLINE void free_cpu(void *pointer) { free(pointer); }
static void *allocate(size_t size) { return alloc_cpu(size); }
static void release(void *pointer) { free_cpu(pointer); }
#endif
} // namespace c10

// others keeps n blocks that are no tensors', each after a tensor that has no memory.
extern "C" void others(int n, size_t size)
{
	static void *volatile kept;

	while (n-- > 0) {
		kept = c10::allocate(0);
		kept = aligned(size);
	}
}

// keep keeps n blocks, and releases as many others.
extern "C" void keep(int n, size_t size)
{
	static void *volatile kept;

	while (n-- > 0) {
		kept = c10::allocate(size);
		c10::release(c10::allocate(size));
	}
}
