// A library with the functions by which torch allocates for tensors. -DPARAMETERS gives them
// others than torch's have today,
// and -DWITHOUT leaves them out.
//
// With -DREPORT, -DREPORT_SIGNED or -DREPORT_WITHOUT_TOTALS it has the hook that learns of the
// blocks of the CUDA allocator,
// too, with the parameters that it has in torch 2, in 1.13, and in versions that passed it no
// totals.
#include <cstddef>
#include <cstdint>
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

struct Device {
	int8_t type, index;
};

// Values that the hook received: how often, the bytes of all CUDA devices together, and then of the
// last time the bytes, the bytes allocated and reserved, and the device's type and index. One
// thread at a time calls it.
extern "C" {
int64_t received[7];
}

[[maybe_unused]] static void receive(int64_t bytes, int64_t allocated, int64_t reserved, Device device)
{
	const int64_t last[] = { bytes, allocated, reserved, device.type, device.index };

	received[0]++;
	received[1] += device.type == 1 ? bytes : 0;
	for (int i = 0; i < 5; i++)
		received[2 + i] = last[i];
}

#if defined(REPORT)
NOINLINE void reportMemoryUsageToProfiler(void *, int64_t bytes, size_t allocated, size_t reserved, Device device)
{
	receive(bytes, allocated, reserved, device);
}
#elif defined(REPORT_SIGNED)
NOINLINE void reportMemoryUsageToProfiler(void *, int64_t bytes, int64_t allocated, int64_t reserved, Device device)
{
	receive(bytes, allocated, reserved, device);
}
#elif defined(REPORT_WITHOUT_TOTALS)
NOINLINE void reportMemoryUsageToProfiler(void *, int64_t bytes, Device device) { receive(bytes, 0, 0, device); }
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
