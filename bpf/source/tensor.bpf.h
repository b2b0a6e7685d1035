/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `tensor`: what torch allocates for tensors. alloc_cpu throws where it gets no memory, and an exception finds
 * no way through a return probe: the program would end. So its entry alone is probed, which takes the decision to
 * sample and the stack; the function of the allocator that it asks, which never throws, is followed in its place. */
#pragma once

#include "call.h"
#include "live.h"
#include "unwind/stack.h"

#define TENSOR_SPAN (8 << 10) /* bytes of stack between alloc_cpu and the function that it asks */

/* alloc_cpu is called. No allocator calls it, and for no bytes, or fewer, it asks none for memory. */
static __always_inline int tensor_begin(struct pt_regs *regs, __u32 tgid)
{
	struct thread *thread = current_thread();
	__u32 mean = tensor_interval;
	struct tensor *tensor;

	if (!thread)
		return SKIP_RETURN;
	if (is_under_way(&thread->call))
		abandon(&thread->call);
	tensor = &thread->tensor;
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

/* The tensor for which a function that gives aligned memory is called at this stack pointer; NULL: it is for nothing
 * that source tensor counts. */
static __always_inline struct tensor *pending_tensor(struct thread *thread, __u64 sp)
{
	struct tensor *tensor = &thread->tensor;
	__u64 tensor_sp = tensor->sp;

	if (!tensor_sp || !tensor_interval || tensor->epoch != tensor_epoch || tensor_sp - sp >= TENSOR_SPAN)
		return NULL;
	return tensor;
}

static __always_inline int tensor_free(struct pt_regs *regs, __u32 tgid)
{
	struct address key = make_address(tgid, REGS_ARG1(regs));

	live_remove(&tensors, &key, NULL);
	return SKIP_RETURN;
}
