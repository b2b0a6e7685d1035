/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Blocks of PyTorch's CUDA caching allocator. The allocator reports each block that it hands out or
 * takes back to c10::reportMemoryUsageToProfiler, with its totals. It does so under the lock of the
 * GPU, so reports arrive in order. */
#pragma once

#include "attach.h"
#include "regs.h"

#include "source/gpu.bpf.h"
#include "unwind/stack.h"

#define DEVICE_TYPE_CUDA 1 /* c10::DeviceType::CUDA, c10/core/DeviceType.h */
#define MAX_GPUS 64        /* per process; a forged report of another one is ignored */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct gpu_id);
	__type(value, struct gpu_total);
} gpu_totals SEC(".maps");

/* Sampling interval of blocks, in mean bytes. 1: every block; 0: no block, only the totals. */
volatile __u32 block_interval = 0;

/* Whether blocks are traced in bursts. Then a block may come back unseen, and its address
 * is handed out again. */
volatile __u32 block_bursts = 0;

/* How many sampled blocks are alive, by a hash of their addresses, at least. Most blocks that come
 * back are not sampled, and need no lookup in `gpu_live`: it is large, and in no cache. */
#define BLOCK_FILTER_SIZE 4096
volatile __u32 block_filter[BLOCK_FILTER_SIZE] = {};

/* Returns the place of a block in the filter. Addresses of blocks are multiples of 512
 * (kMinBlockSize, c10/cuda/CUDACachingAllocator.cpp). */
static __always_inline volatile __u32 *filter_of(const struct gpu_address *key)
{
	__u32 blocks = key->address >> 9;

	return &block_filter[(blocks ^ blocks >> 12 ^ key->tgid) & (BLOCK_FILTER_SIZE - 1)];
}

/* Stores the totals of a GPU. To replace the entry would cost more than all else that most events
 * cost, so it is written in place. A reader may see the allocated bytes of one report beside the
 * reserved bytes of the next. */
static __always_inline void update_totals(const struct gpu_id *gpu, __u64 allocated, __u64 reserved)
{
	struct gpu_total first = { .allocated = allocated, .reserved = reserved };
	struct gpu_total *total = bpf_map_lookup_elem(&gpu_totals, gpu);

	if (total) {
		total->allocated = allocated;
		total->reserved = reserved;
		return;
	}

	record_gpu_user(gpu->tgid);
	if (bpf_map_update_elem(&gpu_totals, gpu, &first, BPF_ANY))
		lose(usage_of(gpu->tgid), DROP_GPU_FULL, 0);
}

/* Removes a block that has been taken back, if it was sampled. */
static __always_inline void block_remove(const struct gpu_address *key)
{
	volatile __u32 *alive = filter_of(key);

	if (*alive && gpu_live_remove(key, NULL))
		__sync_fetch_and_add(alive, -1);
}

/* Adds a block that has been handed out, if it is sampled. */
static __always_inline void block_add(struct thread *thread, struct pt_regs *regs,
				      const struct gpu_address *key, __u64 size, __u32 gpu)
{
	struct gpu_memory memory = {
		.size = size, .interval = block_interval, .kind = KIND_BLOCK, .gpu = gpu
	};

	if (block_bursts)
		block_remove(key);
	if (!memory.interval || !take_sample(&thread->block_sampler, memory.interval, size))
		return;

	memory.stack = capture_stack(regs, key->tgid, true, COUNT_BLOCK_WALK_NS);
	__sync_fetch_and_add(filter_of(key), 1);
	gpu_live_add(key, &memory);
	count(COUNT_BLOCK_SAMPLES);
	charge(thread, costs.sample);
}

/* Handles reportMemoryUsageToProfiler(address, bytes, allocated, reserved, device), where device is
 * a c10::Device: its type and its ordinal, a byte each. bytes < 0: the block has been taken back.
 */
static __always_inline void block_event(struct thread *thread, struct pt_regs *regs, __u32 tgid)
{
	struct gpu_address key = { .address = REGS_ARG1(regs), .tgid = tgid, .space = SPACE_BLOCK };
	struct gpu_id id = { .tgid = tgid, .gpu = ((REGS_ARG5(regs) >> 8) & 0xff) + 1 };
	__s64 bytes = REGS_ARG2(regs);

	if (id.gpu > MAX_GPUS)
		return;

	update_totals(&id, REGS_ARG3(regs), REGS_ARG4(regs));
	if (bytes <= 0)
		block_remove(&key);
	else if (thread)
		block_add(thread, regs, &key, bytes, id.gpu);
}

SEC("uprobe")
int on_block(struct pt_regs *ctx)
{
	__u32 tgid = current_tgid();
	struct thread *thread;

	keep_task_stack(ctx, &no_programs);
	if (!is_traced(tgid))
		return 0;

	count(COUNT_BLOCKS);
	thread = current_thread();
	if (thread)
		charge(thread, costs.block);
	if ((REGS_ARG5(ctx) & 0xff) == DEVICE_TYPE_CUDA)
		block_event(thread, ctx, tgid);
	return 0;
}
