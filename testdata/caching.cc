// Replaces libc10_cuda.so: PyTorch's caching allocator, with the names of its functions on the stacks
// and the layout of its structures in memory, on CUDA's driver. It reports its blocks to libc10.
// Names, orders of fields and sizes are upstream's:
// https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDACachingAllocator.cpp
//
// TOTALS is the type of libc10's totals: long up to PyTorch 1.13. TORCH is the version whose layouts
// it has, as 100 * major + minor: 200, 206 or 299, which is none yet: with a counter before the size
// of a block, and a larger set of streams. Up to 200 there are no requested sizes and no expandable
// segments, and one table of allocated blocks.
//
// Blocks are split, merged and chosen as upstream does. Events never come by themselves.
// block_list() prints records of its own: the ranges of the segments, and the blocks in use. The rest
// is free.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_set>
#include <vector>

#ifndef TORCH
#define TORCH 206
#endif

typedef unsigned long long CUdeviceptr;
extern "C" {
int cuMemAlloc_v2(CUdeviceptr *, size_t);
int cuMemFree_v2(CUdeviceptr);
int cuMemAddressReserve(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
}

namespace c10
{
struct Device {
	int8_t type, index;
};
void reportMemoryUsageToProfiler(void *, int64_t, TOTALS, TOTALS, Device);

namespace cuda::CUDACachingAllocator::Native
{
typedef uintptr_t Address;
typedef std::pair<uint64_t, uint64_t> MempoolId_t;

const size_t kMinBlockSize = 512;
const size_t kSmallSize = 1 << 20, kSmallBuffer = 2 << 20;
const size_t kMinLargeAlloc = 10 << 20, kLargeBuffer = 20 << 20, kRoundLarge = 2 << 20;
const size_t reservation = 8UL << 30; // bytes of addresses of an expandable segment
const int gpus = 2;

static size_t round_up(size_t n, size_t unit)
{
	return (n + unit - 1) / unit * unit;
}

// The layout of ska::flat_hash_map, with its Robin Hood hashing:
// https://github.com/pytorch/pytorch/blob/main/c10/util/flat_hash_map.h
template <typename Key, typename Value> class flat_hash_map
{
	struct Entry {
		int8_t distance_from_desired;
		Key key;
		[[no_unique_address]] Value value;
	};

	Entry *entries = empty_default_table();
	uint64_t num_slots_minus_one = 0;
	int8_t shift = 63;
	int8_t max_lookups = 3;
	float max_load_factor = 0.5;
	uint64_t num_elements = 0;

	static Entry *empty_default_table()
	{
		static Entry table[] = { { -1, {}, {} }, { -1, {}, {} }, { -1, {}, {} }, { 0, {}, {} } };
		return table;
	}

	template <typename Pointer> static uint64_t hash(const Pointer &key)
	{
		return (uint64_t)key;
	}

	static uint64_t hash(const MempoolId_t &key)
	{
		return key.first ? key.first : key.second;
	}

	Entry *desired(const Key &key)
	{
		return num_slots_minus_one ? entries + (11400714819323198485ULL * hash(key) >> shift) : entries;
	}

	Entry *entry(const Key &key)
	{
		Entry *e = desired(key);
		for (int8_t distance = 0; e->distance_from_desired >= distance && distance < max_lookups;
		     distance++, e++)
			if (e->key == key)
				return e;
		return nullptr;
	}

	void grow()
	{
		uint64_t slots = std::max<uint64_t>(4, 2 * (num_slots_minus_one + 1));
		Entry *old = entries;
		uint64_t used = num_slots_minus_one + max_lookups;
		max_lookups = std::max(4, __builtin_ctzll(slots));
		shift = 64 - __builtin_ctzll(slots);
		entries = (Entry *)calloc(slots + max_lookups, sizeof(Entry));
		for (uint64_t i = 0; i < slots + max_lookups - 1; i++)
			entries[i].distance_from_desired = -1;
		num_slots_minus_one = slots - 1;
		num_elements = 0;
		for (uint64_t i = 0; i < used; i++)
			if (old[i].distance_from_desired >= 0)
				insert(old[i].key, old[i].value);
		if (old != empty_default_table())
			::free(old);
	}

      public:
	Value *find(const Key &key)
	{
		Entry *e = entry(key);
		return e ? &e->value : nullptr;
	}

	void insert(const Key &key, const Value &value)
	{
		if (num_slots_minus_one == 0 || num_elements + 1 > (num_slots_minus_one + 1) * max_load_factor)
			grow();
		Entry next = { 0, key, value };
		for (Entry *e = desired(key); next.distance_from_desired < max_lookups; e++) {
			if (e->distance_from_desired < 0) {
				*e = next;
				num_elements++;
				return;
			}
			if (e->distance_from_desired < next.distance_from_desired)
				std::swap(*e, next);
			next.distance_from_desired++;
		}
		grow();
		insert(next.key, next.value);
	}

	void erase(const Key &key)
	{
		Entry *e = entry(key);
		if (!e)
			return;
		for (; e[1].distance_from_desired > 0; e++) {
			e[0] = e[1];
			e[0].distance_from_desired--;
		}
		e->distance_from_desired = -1;
		num_elements--;
	}
};
static_assert(sizeof(flat_hash_map<void *, void *>) == 32);

// A set is a map whose values have no bytes.
struct Nothing {
};
template <typename Key> using flat_hash_set = flat_hash_map<Key, Nothing>;

struct Block;
struct PrivatePool;
typedef bool (*Comparison)(const Block *, const Block *);
static bool BlockComparatorSize(const Block *a, const Block *b);
static bool BlockComparatorAddress(const Block *a, const Block *b);

struct BlockPool {
	std::set<Block *, Comparison> blocks{ BlockComparatorSize };
#if TORCH > 200
	std::set<Block *, Comparison> unmapped{ BlockComparatorAddress };
#endif
	const bool is_small;
	PrivatePool *owner_PrivatePool;
#if TORCH > 200
	int64_t get_free_blocks_call_count = 0;
#endif

	BlockPool(bool small, PrivatePool *owner = nullptr) : is_small(small), owner_PrivatePool(owner)
	{
	}
};

struct Block {
#if TORCH > 200
	int8_t device;
#else
	int device;
#endif
	uint64_t stream;
#if TORCH <= 200
	std::unordered_set<uint64_t> stream_uses;
#else
	flat_hash_set<uint64_t *> stream_uses;
#endif
#if TORCH > 206
	uint64_t more_of_stream_uses = 0, registration_counter = 7;
#endif
	size_t size;
#if TORCH > 200
	size_t requested_size = 0;
#endif
	BlockPool *pool;
	Address ptr;
	bool allocated = false;
#if TORCH > 200
	bool mapped = true;
#endif
	Block *prev = nullptr, *next = nullptr;
	int event_count = 0;
	int64_t gc_count_base = 0;
	std::shared_ptr<int> context_when_allocated, context_when_segment_allocated;
#if TORCH > 200
	void *expandable_segment_ = nullptr;
#endif

	Block(int device, uint64_t stream, size_t size, BlockPool *pool = nullptr, Address ptr = 0)
	    : device(device), stream(stream), size(size), pool(pool), ptr(ptr)
	{
	}

	bool is_mapped() const
	{
#if TORCH > 200
		return mapped;
#else
		return true;
#endif
	}

	void set_mapped(bool to)
	{
#if TORCH > 200
		mapped = to;
#endif
	}

	void set_requested(size_t to)
	{
#if TORCH > 200
		requested_size = to;
#endif
	}

	bool is_expandable() const
	{
#if TORCH > 200
		return expandable_segment_;
#else
		return false;
#endif
	}
};

static bool BlockComparatorSize(const Block *a, const Block *b)
{
	if (a->stream != b->stream)
		return a->stream < b->stream;
	return a->size != b->size ? a->size < b->size : a->ptr < b->ptr;
}

__attribute__((used)) static bool BlockComparatorAddress(const Block *a, const Block *b)
{
	return a->stream != b->stream ? a->stream < b->stream : a->ptr < b->ptr;
}

struct PrivatePool {
	MempoolId_t id;
	int use_count = 1, cudaMalloc_count = 0;
	BlockPool large_blocks{ false, this }, small_blocks{ true, this };
};

// https://github.com/pytorch/pytorch/blob/main/c10/core/CachingDeviceAllocator.h
struct Stat {
	int64_t current = 0, peak = 0, allocated = 0, freed = 0;

	void change(int64_t by)
	{
		current += by;
		peak = std::max(peak, current);
		(by > 0 ? allocated : freed) += by > 0 ? by : -by;
	}
};

struct DeviceStats {
	typedef Stat StatArray[3];
	StatArray allocation, segment, active, inactive_split;
	StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes;
#if TORCH > 200
	StatArray requested_bytes;
#endif
	int64_t num_alloc_retries = 0, num_ooms = 0;
	Stat oversize_allocations, oversize_segments;
	int64_t max_split_size = 0;
};

static void change(DeviceStats::StatArray &stats, bool is_small, int64_t by)
{
	stats[0].change(by);
	stats[is_small ? 1 : 2].change(by);
}

// The records of a segment, and of a block in use.
struct Segment {
	uint64_t stream;
	MempoolId_t pool;
	bool is_small, is_expandable;
	std::map<Address, Address> mapped; // ranges
};

struct Use {
	size_t size, requested;
	bool is_pending;
};

static bool expandable_segments; // the setting

class DeviceCachingAllocator
{
	std::recursive_mutex mutex;
	DeviceStats stats;
	BlockPool large_blocks{ false }, small_blocks{ true };
	flat_hash_set<Block *> active_blocks;
	std::vector<Block *> pending;
	PrivatePool *capturing = nullptr;
	uint64_t total_allocated_memory = 0;
	flat_hash_map<MempoolId_t, PrivatePool *> graph_pools;

	const int device;
	std::vector<PrivatePool *> private_pools;
	std::map<Address, Segment> segments; // records
	std::map<Address, Use> uses;

	BlockPool &get_pool(size_t size);
	Block *get_free_block(BlockPool &pool, uint64_t stream, size_t size);
	Block *try_allocate_expandable_block(BlockPool &pool, uint64_t stream, size_t size);
	bool alloc_block(BlockPool &pool, uint64_t stream, size_t size, Block *&block);
	Block *split(Block *block, size_t size);
	void free_block(Block *block);
	std::set<Block *, Comparison> &set_of(Block *block);
	void merge(Block *block, Block *neighbor);
	bool release_blocks(BlockPool &pool);
	void unmap_block(Block *block);
	void record_mapped(Address start, Address end);
	void record_unmapped(Address start, Address end);
	void list(FILE *to, const Segment &segment, Address start, Address end);
	void report(void *address, int64_t size);

      public:
	DeviceCachingAllocator(int device) : device(device)
	{
	}
	Block *malloc(size_t size, uint64_t stream);
	void free(Block *block, bool is_used);
	void process_events();
	void empty_cache();
	void begin_pool(const MempoolId_t &id);
	void end_pool();
	void release_pool(const MempoolId_t &id);
	void list(FILE *to);
};

BlockPool &DeviceCachingAllocator::get_pool(size_t size)
{
	bool is_small = size <= kSmallSize;
	if (capturing)
		return is_small ? capturing->small_blocks : capturing->large_blocks;
	return is_small ? small_blocks : large_blocks;
}

Block *DeviceCachingAllocator::get_free_block(BlockPool &pool, uint64_t stream, size_t size)
{
	Block key(device, stream, size);
	auto found = pool.blocks.lower_bound(&key);
	if (found == pool.blocks.end() || (*found)->stream != stream)
		return nullptr;
	Block *block = *found;
	pool.blocks.erase(found);
	return block;
}

// Cuts a block in two, the first of which has so many bytes. Returns the second.
Block *DeviceCachingAllocator::split(Block *block, size_t size)
{
	Block *rest = new Block(device, block->stream, block->size - size, block->pool, block->ptr + size);
	rest->set_mapped(block->is_mapped());
#if TORCH > 200
	rest->expandable_segment_ = block->expandable_segment_;
#endif
	rest->prev = block;
	rest->next = block->next;
	if (rest->next)
		rest->next->prev = rest;
	block->next = rest;
	block->size = size;
	return rest;
}

Block *DeviceCachingAllocator::try_allocate_expandable_block(BlockPool &pool, uint64_t stream, size_t size)
{
#if TORCH > 200
	const size_t page = pool.is_small ? kSmallBuffer : kLargeBuffer;
	Block *block = nullptr;
	for (Block *b : pool.unmapped)
		if (b->stream == stream && b->size >= round_up(size, page)) {
			block = b;
			break;
		}
	if (!block) {
		CUdeviceptr address;
		size_t reserved = reservation / page * page;
		if (cuMemAddressReserve(&address, reserved, 0, 0, 0))
			return nullptr;
		block = new Block(device, stream, reserved, &pool, address);
		block->mapped = false;
		block->expandable_segment_ = block;
		PrivatePool *owner = pool.owner_PrivatePool;
		segments[address] = { stream, owner ? owner->id : MempoolId_t(), pool.is_small, true, {} };
	} else {
		pool.unmapped.erase(block);
	}

	Block *before = block->prev;
	bool merges = before && before->mapped && !before->allocated && !before->event_count;
	size_t mapped = round_up(size - (merges ? before->size : 0), page);
	if (mapped < block->size)
		pool.unmapped.insert(split(block, mapped));
	block->mapped = true;
	change(stats.reserved_bytes, pool.is_small, mapped);
	record_mapped(block->ptr, block->ptr + mapped);
	merge(block, block->prev);
	merge(block, block->next);
	return block;
#else
	return nullptr;
#endif
}

__attribute__((noinline)) bool DeviceCachingAllocator::alloc_block(BlockPool &pool, uint64_t stream, size_t size,
								   Block *&block)
{
	if (expandable_segments) {
		block = try_allocate_expandable_block(pool, stream, size);
		return block;
	}
	size_t length = size < kMinLargeAlloc ? kLargeBuffer : round_up(size, kRoundLarge);
	if (size <= kSmallSize)
		length = kSmallBuffer;
	CUdeviceptr address;
	if (cuMemAlloc_v2(&address, length))
		return false;
	block = new Block(device, stream, length, &pool, address);
	PrivatePool *owner = pool.owner_PrivatePool;
	if (owner)
		owner->cudaMalloc_count++;
	segments[address] = { stream, owner ? owner->id : MempoolId_t(), pool.is_small, false, {} };
	record_mapped(address, address + length);
	change(stats.reserved_bytes, pool.is_small, length);
	return true;
}

__attribute__((noinline)) Block *DeviceCachingAllocator::malloc(size_t requested, uint64_t stream)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	size_t size = std::max(kMinBlockSize, round_up(requested, kMinBlockSize));
	BlockPool &pool = get_pool(size);
	Block *block = get_free_block(pool, stream, size);
	if (!block && !alloc_block(pool, stream, size, block)) {
		stats.num_alloc_retries++;
		empty_cache();
		if (!alloc_block(pool, stream, size, block)) {
			stats.num_ooms++;
			return nullptr;
		}
	}
	size_t rest = block->size - size;
	if (rest >= kMinBlockSize && (pool.is_small || expandable_segments || rest > kSmallSize))
		pool.blocks.insert(split(block, size));
	block->allocated = true;
	block->set_requested(requested);
	active_blocks.insert(block, {});
	uses[block->ptr] = { block->size, requested, false };
	change(stats.allocated_bytes, pool.is_small, block->size);
	report((void *)block->ptr, block->size);
	return block;
}

// Takes a block back, which a stream still uses or not.
__attribute__((noinline)) void DeviceCachingAllocator::free(Block *block, bool is_used)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	block->allocated = false;
	change(stats.allocated_bytes, block->pool->is_small, -(int64_t)block->size);
	report((void *)block->ptr, -(int64_t)block->size);
	if (is_used) {
		block->event_count++;
		pending.push_back(block);
		uses[block->ptr].is_pending = true;
	} else {
		free_block(block);
	}
}

void DeviceCachingAllocator::free_block(Block *block)
{
	active_blocks.erase(block);
	uses.erase(block->ptr);
	block->set_requested(0);
	merge(block, block->prev);
	merge(block, block->next);
	block->pool->blocks.insert(block);
}

// Returns the set of the pool that a block belongs to once it is free.
std::set<Block *, Comparison> &DeviceCachingAllocator::set_of(Block *block)
{
#if TORCH > 200
	if (!block->mapped)
		return block->pool->unmapped;
#endif
	return block->pool->blocks;
}

// Adds a neighbor to a block, if it is free.
void DeviceCachingAllocator::merge(Block *block, Block *neighbor)
{
	if (!neighbor || neighbor->allocated || neighbor->event_count || neighbor->is_mapped() != block->is_mapped())
		return;
	set_of(block).erase(neighbor);
	if (neighbor == block->prev) {
		block->ptr = neighbor->ptr;
		block->prev = neighbor->prev;
		if (block->prev)
			block->prev->next = block;
	} else {
		block->next = neighbor->next;
		if (block->next)
			block->next->prev = block;
	}
	block->size += neighbor->size;
	delete neighbor;
}

void DeviceCachingAllocator::process_events()
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	for (Block *block : pending) {
		block->event_count--;
		free_block(block);
	}
	pending.clear();
}

// Returns the whole pages of a free block to the driver.
void DeviceCachingAllocator::unmap_block(Block *block)
{
#if TORCH > 200
	BlockPool &pool = *block->pool;
	const size_t page = pool.is_small ? kSmallBuffer : kLargeBuffer;
	Address base = std::prev(segments.upper_bound(block->ptr))->first;
	Address start = base + round_up(block->ptr - base, page);
	Address end = base + (block->ptr + block->size - base) / page * page;
	if (start >= end)
		return;
	pool.blocks.erase(block);
	if (start > block->ptr) {
		Block *middle = split(block, start - block->ptr);
		pool.blocks.insert(block);
		block = middle;
	}
	if (block->ptr + block->size > end)
		pool.blocks.insert(split(block, end - block->ptr));
	block->mapped = false;
	change(stats.reserved_bytes, pool.is_small, -(int64_t)block->size);
	record_unmapped(start, end);
	merge(block, block->prev);
	merge(block, block->next);
	pool.unmapped.insert(block);
#endif
}

bool DeviceCachingAllocator::release_blocks(BlockPool &pool)
{
	std::vector<Block *> blocks(pool.blocks.begin(), pool.blocks.end());
	for (Block *block : blocks) {
		if (block->is_expandable()) {
			unmap_block(block);
		} else if (!block->prev && !block->next) {
			pool.blocks.erase(block);
			cuMemFree_v2(block->ptr);
			change(stats.reserved_bytes, pool.is_small, -(int64_t)block->size);
			if (pool.owner_PrivatePool)
				pool.owner_PrivatePool->cudaMalloc_count--;
			segments.erase(block->ptr);
			delete block;
		}
	}
	return !blocks.empty();
}

void DeviceCachingAllocator::empty_cache()
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	process_events();
	release_blocks(large_blocks);
	release_blocks(small_blocks);
	for (PrivatePool *&p : private_pools) {
		if (p->use_count)
			continue;
		release_blocks(p->large_blocks);
		release_blocks(p->small_blocks);
	}
}

void DeviceCachingAllocator::begin_pool(const MempoolId_t &id)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	if (PrivatePool **known = graph_pools.find(id)) {
		capturing = *known;
		return;
	}
	capturing = new PrivatePool{ id };
	private_pools.push_back(capturing);
	graph_pools.insert(id, capturing);
}

void DeviceCachingAllocator::end_pool()
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	capturing = nullptr;
}

void DeviceCachingAllocator::release_pool(const MempoolId_t &id)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	if (PrivatePool **known = graph_pools.find(id))
		(*known)->use_count = 0;
}

void DeviceCachingAllocator::report(void *address, int64_t size)
{
	c10::reportMemoryUsageToProfiler(address, size, stats.allocated_bytes[0].current,
					 stats.reserved_bytes[0].current, Device{ 1, (int8_t)device });
}

void DeviceCachingAllocator::record_mapped(Address start, Address end)
{
	auto &mapped = std::prev(segments.upper_bound(start))->second.mapped;
	auto behind = mapped.find(end);
	if (behind != mapped.end()) {
		end = behind->second;
		mapped.erase(behind);
	}
	auto before = mapped.lower_bound(start);
	if (before != mapped.begin() && std::prev(before)->second == start)
		std::prev(before)->second = end;
	else
		mapped[start] = end;
}

void DeviceCachingAllocator::record_unmapped(Address start, Address end)
{
	auto &mapped = std::prev(segments.upper_bound(start))->second.mapped;
	auto range = std::prev(mapped.upper_bound(start));
	Address first = range->first, last = range->second;
	mapped.erase(range);
	if (first < start)
		mapped[first] = start;
	if (end < last)
		mapped[end] = last;
}

// Prints a line for each segment, for each of its blocks, and for the counts.
void DeviceCachingAllocator::list(FILE *to)
{
	std::lock_guard<std::recursive_mutex> lock(mutex);
	for (auto &[address, segment] : segments)
		for (auto &[start, end] : segment.mapped)
			list(to, segment, start, end);
	fprintf(to, "stats %d %ld %ld %ld %ld\n", device, stats.allocated_bytes[0].peak, stats.reserved_bytes[0].peak,
		stats.num_alloc_retries, stats.num_ooms);
}

void DeviceCachingAllocator::list(FILE *to, const Segment &segment, Address start, Address end)
{
	fprintf(to, "segment %d %lu %lu %lu %lu %lu %d %d\n", device, start, end - start, segment.stream,
		segment.pool.first, segment.pool.second, segment.is_small, segment.is_expandable);
	auto use = uses.lower_bound(start);
	while (start < end) {
		if (use == uses.end() || use->first > start) {
			Address next = use == uses.end() ? end : std::min(end, use->first);
			fprintf(to, "block %lu %lu -1 0\n", start, next - start);
			start = next;
			continue;
		}
		fprintf(to, "block %lu %lu %ld %d\n", start, use->second.size,
			use->second.is_pending || TORCH <= 200 ? -1 : (long)use->second.requested,
			use->second.is_pending ? 1 : 2);
		start += use->second.size;
		use++;
	}
}

class NativeCachingAllocator
{
	static const int shards = TORCH > 200 ? 67 : 1;
	std::mutex mutex[shards];
	flat_hash_map<Address, Block *> allocated_blocks[shards];

	static int shard(Address address)
	{
		return address / kMinBlockSize % shards;
	}

      public:
	std::vector<std::unique_ptr<DeviceCachingAllocator>> device_allocator;

	NativeCachingAllocator()
	{
		for (int i = 0; i < gpus; i++)
			device_allocator.emplace_back(new DeviceCachingAllocator(i));
	}

	void *malloc(int device, size_t size, uint64_t stream)
	{
		Block *block = device_allocator[device]->malloc(size, stream);
		if (!block)
			return nullptr;
		std::lock_guard<std::mutex> lock(mutex[shard(block->ptr)]);
		allocated_blocks[shard(block->ptr)].insert(block->ptr, block);
		return (void *)block->ptr;
	}

	void free(void *address, bool is_used)
	{
		int i = shard((Address)address);
		mutex[i].lock();
		Block *block = *allocated_blocks[i].find((Address)address);
		allocated_blocks[i].erase((Address)address);
		mutex[i].unlock();
		device_allocator[block->device]->free(block, is_used);
	}
};

static NativeCachingAllocator allocator;
} // namespace cuda::CUDACachingAllocator::Native
} // namespace c10

using namespace c10::cuda::CUDACachingAllocator::Native;

extern "C" {
void *block_malloc(size_t size)
{
	return allocator.malloc(0, size, 0);
}

void *block_malloc_on(int gpu, size_t size, uint64_t stream)
{
	return allocator.malloc(gpu, size, stream);
}

void block_free(void *block)
{
	allocator.free(block, false);
}

// Frees a block that a stream uses until block_process_events().
void block_free_used(void *block)
{
	allocator.free(block, true);
}

void block_process_events()
{
	for (auto &a : allocator.device_allocator)
		a->process_events();
}

void block_empty_cache()
{
	for (auto &a : allocator.device_allocator)
		a->empty_cache();
}

// Blocks of a GPU are from a private pool until block_end_pool().
void block_begin_pool(int gpu, uint64_t first, uint64_t second)
{
	allocator.device_allocator[gpu]->begin_pool({ first, second });
}

void block_end_pool(int gpu)
{
	allocator.device_allocator[gpu]->end_pool();
}

// The graph of a private pool is gone: block_empty_cache() returns its memory.
void block_release_pool(int gpu, uint64_t first, uint64_t second)
{
	allocator.device_allocator[gpu]->release_pool({ first, second });
}

void block_expandable_segments(int on)
{
	expandable_segments = on && TORCH > 200;
}

void block_list(FILE *to)
{
	for (auto &a : allocator.device_allocator)
		a->list(to);
}
}
