// Replaces libc10_cuda.so: a caching allocator with the names of torch's own on its stacks, which
// takes segments from
// CUDA's driver and reports its blocks to libc10. A block is a multiple of 512 bytes; segments
// are 20 MiB, or more for
// larger blocks; a block that comes back serves the next block of its size. TOTALS is the type of
// libc10's totals: long up to
// PyTorch 1.13.
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

typedef unsigned long long CUdeviceptr;
extern "C" int cuMemAlloc_v2(CUdeviceptr *, size_t);

namespace c10
{
struct Device {
	int8_t type, index;
};
void reportMemoryUsageToProfiler(void *, int64_t, TOTALS, TOTALS, Device);

namespace cuda::CUDACachingAllocator::Native
{
class DeviceCachingAllocator
{
	std::mutex mutex;
	std::map<size_t, std::vector<CUdeviceptr>> cached;
	std::map<CUdeviceptr, size_t> blocks;
	CUdeviceptr next = 0, end = 0;
	TOTALS allocated = 0, reserved = 0;

	bool alloc_block(size_t size);

      public:
	void *malloc(size_t size);
	void free(void *block);
};

__attribute__((noinline)) bool DeviceCachingAllocator::alloc_block(size_t size)
{
	size_t length = size > (20 << 20) ? size : 20 << 20;
	if (cuMemAlloc_v2(&next, length))
		return false;
	end = next + length;
	reserved += length;
	return true;
}

__attribute__((noinline)) void *DeviceCachingAllocator::malloc(size_t size)
{
	std::lock_guard<std::mutex> lock(mutex);
	size = (size + 511) & ~511UL;
	CUdeviceptr address;
	if (!cached[size].empty()) {
		address = cached[size].back();
		cached[size].pop_back();
	} else {
		if (end - next < size && !alloc_block(size))
			return nullptr;
		address = next;
		next += size;
	}
	blocks[address] = size;
	allocated += size;
	reportMemoryUsageToProfiler((void *)address, size, allocated, reserved, Device{ 1, 0 });
	return (void *)address;
}

__attribute__((noinline)) void DeviceCachingAllocator::free(void *block)
{
	std::lock_guard<std::mutex> lock(mutex);
	CUdeviceptr address = (CUdeviceptr)block;
	size_t size = blocks[address];
	blocks.erase(address);
	cached[size].push_back(address);
	allocated -= size;
	reportMemoryUsageToProfiler(block, -(int64_t)size, allocated, reserved, Device{ 1, 0 });
}

static DeviceCachingAllocator allocator;
} // namespace cuda::CUDACachingAllocator::Native
} // namespace c10

extern "C" void *block_malloc(size_t size)
{
	return c10::cuda::CUDACachingAllocator::Native::allocator.malloc(size);
}

extern "C" void block_free(void *block)
{
	c10::cuda::CUDACachingAllocator::Native::allocator.free(block);
}
