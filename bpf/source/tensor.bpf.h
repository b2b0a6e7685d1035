/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `tensor`: memory that PyTorch allocates for tensors, by c10::alloc_cpu. alloc_cpu throws
 * when out of memory, and the C++ runtime cannot unwind through a return probe: the program would
 * abort. Only its entry is probed, where the sampling decision and the stack are taken. The
 * allocator function that it calls, which never throws, is followed to its return instead. */
#pragma once

#include "call.h"
#include "live.h"

#include "unwind/stack.h"

/* Stack between the entries of alloc_cpu and of the allocator function that it calls, in bytes. */
#define TENSOR_STACK_BYTES (8 << 10)

/* Handles the entry of alloc_cpu. No allocator calls it, so a pending call has missed its return.
 * alloc_cpu calls no allocator for a size <= 0. */
static __always_inline int tensor_begin(struct thread *thread, struct pt_regs *regs, __u32 tgid)
{
	struct tensor *tensor = &thread->tensor;
	__u32 mean = tensor_interval;

	if (is_under_way(&thread->call))
		abandon_call(&thread->call);

	tensor->sp = 0;
	tensor->size = REGS_ARG1(regs);
	if ((__s64)tensor->size <= 0)
		return SKIP_RETURN;

	tensor->interval = 0;
	if (take_sample(&thread->tensor_sampler, mean, tensor->size)) {
		tensor->interval = mean;
		tensor->stack = capture_stack(regs, tgid, true, COUNT_WALK_NS);
	}

	tensor->epoch = tensor_epoch;
	tensor->sp = REGS_SP(regs);
	return SKIP_RETURN;
}

/* Returns the tensor for which an allocator function is called at this stack pointer; NULL: none.
 */
static __always_inline struct tensor *pending_tensor(struct thread *thread, __u64 sp)
{
	struct tensor *tensor = &thread->tensor;
	__u64 tensor_sp = tensor->sp;

	if (!tensor_sp || !tensor_interval || tensor->epoch != tensor_epoch ||
	    tensor_sp - sp >= TENSOR_STACK_BYTES)
		return NULL;
	return tensor;
}

/* Handles a free by source tensor's own probe. */
static __always_inline int tensor_free(struct pt_regs *regs, __u32 tgid)
{
	struct address key = make_address(tgid, REGS_ARG1(regs));

	live_remove(&tensors, TABLE_TENSORS, &key, NULL);
	return SKIP_RETURN;
}
