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

static __always_inline void update_totals(const struct gpu_id *gpu, __u64 allocated, __u64 reserved)
{
	struct gpu_total total = { .allocated = allocated,
				   .reserved = reserved,
				   .time = bpf_ktime_get_ns() };

	if (bpf_map_update_elem(&gpu_totals, gpu, &total, BPF_ANY))
		lose(usage_of(gpu->tgid), DROP_GPU_FULL, 0);
}

/* Adds a block that has been handed out, if it is sampled. */
static __always_inline void block_add(struct pt_regs *regs, const struct gpu_address *key,
				      __u64 size, __u32 gpu)
{
	struct gpu_thread *thread = current_gpu_thread();
	struct gpu_memory memory = {
		.size = size, .interval = block_interval, .kind = KIND_BLOCK, .gpu = gpu
	};

	if (!thread || !memory.interval || !take_sample(&thread->sampler, memory.interval, size))
		return;

	memory.stack = capture_stack(regs, key->tgid, true, COUNT_BLOCK_WALK_NS);
	gpu_live_add(key, &memory);
}

/* Handles reportMemoryUsageToProfiler(address, bytes, allocated, reserved, device), where device is
 * a c10::Device: its type and its ordinal, a byte each. bytes < 0: the block has been taken back.
 */
static __always_inline void block_event(struct pt_regs *regs, __u32 tgid)
{
	struct gpu_address key = { .address = REGS_ARG1(regs), .tgid = tgid, .space = SPACE_BLOCK };
	struct gpu_id id = { .tgid = tgid, .gpu = ((REGS_ARG5(regs) >> 8) & 0xff) + 1 };
	__s64 bytes = REGS_ARG2(regs);
	struct gpu_memory removed;

	if (id.gpu > MAX_GPUS)
		return;

	update_totals(&id, REGS_ARG3(regs), REGS_ARG4(regs));
	record_gpu_user(tgid);

	if (bytes > 0)
		block_add(regs, &key, bytes, id.gpu);
	else
		gpu_live_pop(&key, &removed);
}

SEC("uprobe")
int on_block(struct pt_regs *ctx)
{
	__u64 start = bpf_ktime_get_ns(), ns;
	__u32 tgid = current_tgid();

	keep_task_stack(ctx, &no_programs);
	if (!is_traced(tgid))
		return 0;

	count(COUNT_BLOCKS);
	if ((REGS_ARG5(ctx) & 0xff) == DEVICE_TYPE_CUDA)
		block_event(ctx, tgid);

	ns = bpf_ktime_get_ns() - start;
	count_many(COUNT_BLOCK_NS, ns);
	charge_current(costs.entry + ns);
	return 0;
}
