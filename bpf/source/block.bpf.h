/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Blocks of torch's caching allocator for CUDA. It tells c10::reportMemoryUsageToProfiler of each that it hands out or
 * takes back, with totals of its own, while it holds the lock of the GPU: what comes later is newer. */
#pragma once

#include "attach.h"
#include "source/gpu.bpf.h"
#include "unwind/stack.h"

#define DEVICE_TYPE_CUDA 1 /* c10/core/DeviceType.h */
#define MOST_GPUS 64       /* in a process; what a forged event tells of more is passed over */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct cuda_device);
	__type(value, struct cuda_total);
} cuda_totals SEC(".maps");

/* Mean bytes between sampled blocks; 1: every one; 0: none, and the totals alone are kept. */
volatile __u32 block_interval = 0;

/* Keeps the totals, and tells how many blocks have been seen. */
static __always_inline void keep_totals(const struct cuda_device *device, __u64 allocated, __u64 reserved)
{
	struct cuda_total total = { .allocated = allocated, .reserved = reserved, .time = bpf_ktime_get_ns() };

	if (bpf_map_update_elem(&cuda_totals, device, &total, BPF_ANY))
		count(DROP_DEVICE_FULL);
}

static __always_inline void block_add(struct pt_regs *regs, const struct device_address *key, __u64 size, __u32 gpu)
{
	struct device_thread *thread = current_device_thread();
	struct device_memory memory = { .size = size, .interval = block_interval, .kind = KIND_BLOCK, .gpu = gpu };

	if (!thread || !memory.interval || !take_sample(&thread->sampler, memory.interval, size))
		return;
	memory.stack = capture_stack(regs, key->tgid, true, COUNT_BLOCK_WALK_NS);
	device_add(key, &memory);
}

/* reportMemoryUsageToProfiler(address, bytes, allocated, reserved, device): bytes < 0 where it comes back. */
static __always_inline void block_event(struct pt_regs *regs, __u32 tgid)
{
	struct device_address key = { .address = REGS_ARG1(regs), .tgid = tgid, .space = SPACE_BLOCK };
	struct cuda_device device = { .tgid = tgid, .gpu = ((REGS_ARG5(regs) >> 8) & 0xff) + 1 };
	__s64 bytes = REGS_ARG2(regs);
	struct device_memory taken;

	if (device.gpu > MOST_GPUS)
		return;
	keep_totals(&device, REGS_ARG3(regs), REGS_ARG4(regs));
	note_device_user(tgid);
	if (bytes > 0)
		block_add(regs, &key, bytes, device.gpu);
	else
		device_take(&key, &taken);
}

SEC("uprobe")
int on_block(struct pt_regs *ctx)
{
	__u64 began = bpf_ktime_get_ns();
	__u32 tgid = current_tgid();

	keep_task_stack(ctx, &no_programs);
	if (!is_traced(tgid))
		return 0;
	count(COUNT_BLOCKS);
	if ((REGS_ARG5(ctx) & 0xff) == DEVICE_TYPE_CUDA)
		block_event(ctx, tgid);
	count_many(COUNT_BLOCK_NS, bpf_ktime_get_ns() - began);
	return 0;
}
