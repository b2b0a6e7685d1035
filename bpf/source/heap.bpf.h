/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `heap`: malloc and its variants. The sampling decision and the stack are taken at the
 * entry, the address at the return; free() needs the entry alone. An allocation for a tensor takes
 * over the tensor's decision and stack. */
#pragma once

#include "attach.h"
#include "call.h"
#include "live.h"

#include "source/tensor.bpf.h"
#include "unwind/stack.h"

/* Returns whether a pending call frees its own old object, which stash_old_object() has removed
 * from the live map already. */
static __always_inline bool is_own_free(const struct thread *thread, struct pt_regs *regs,
					__u64 pointer)
{
	const struct call *call = &thread->call;

	return is_under_way(call) && call->old_address.address == pointer &&
	       is_nested(call, REGS_SP(regs), COOKIE_NONE);
}

/* Handles the entry of free(). */
static __always_inline int heap_free(const struct thread *thread, struct pt_regs *regs, __u32 tgid,
				     enum probe_cookie cookie)
{
	struct address key = make_address(tgid, REGS_ARG1(regs));

	if (!key.address || ((cookie & COOKIE_CALLED) && is_own_free(thread, regs, key.address)))
		return SKIP_RETURN;

	count(COUNT_FREES);
	if (!live_remove(&live, TABLE_LIVE, &key, NULL))
		count(COUNT_FREES_UNTRACKED);
	return SKIP_RETURN;
}

/* Moves the old object of realloc from the live map into the call, before the allocator can return
 * its address to another thread. heap_call_return() puts it back if the call fails. */
static __always_inline void stash_old_object(struct call *call, __u32 tgid, __u64 pointer)
{
	call->old_address = make_address(tgid, pointer);
	call->old_was_live =
		pointer && live_remove(&live, TABLE_LIVE, &call->old_address, &call->old);
}

/* Returns whether the return of an unsampled call is of no interest. malloc calls no other probed
 * function. While source heap is closed, nested calls of a tensor's allocation do not count. */
static __always_inline bool needs_no_return(const struct call *call)
{
	return call->form == CALL_MALLOC || call->cookie & COOKIE_THROWS ||
	       (call->kind == KIND_TENSOR && !interval);
}

/* Decides whether to sample a call and captures its stack, or takes over both from its tensor. */
static __always_inline void sample_call(struct thread *thread, struct tensor *tensor,
					struct pt_regs *regs, __u32 tgid)
{
	struct call *call = &thread->call;
	__u32 mean = interval;

	call->interval = 0;
	call->kind = tensor ? KIND_TENSOR : KIND_HEAP;
	call->epoch = tensor ? tensor->epoch : epoch;

	if (tensor) {
		tensor->sp = 0; /* alloc_cpu calls the allocator once */
		call->size = tensor->size;
		call->stack = tensor->stack;
		call->interval = tensor->interval;
		if (call->interval)
			count(COUNT_BEGUN);
	} else if (call->size != ~0ULL && take_sample(&thread->sampler, mean, call->size)) {
		call->interval = mean;
		count(COUNT_BEGUN); /* before the walk, which takes its time */
		call->stack = capture_stack(regs, tgid, true, COUNT_WALK_NS);
	}
}

/* Handles the entry of a function that allocates. */
static __always_inline int heap_allocate(struct thread *thread, struct pt_regs *regs, __u32 tgid,
					 enum probe_cookie cookie)
{
	struct call *call = &thread->call;
	struct tensor *tensor = NULL;
	__u64 old_pointer = 0;

	if (is_inner_call(call, REGS_SP(regs), cookie))
		return SKIP_RETURN;

	if (cookie & COOKIE_ALIGNED)
		tensor = pending_tensor(thread, REGS_SP(regs));
	if (!tensor != !(cookie & COOKIE_TENSOR)) /* the other source's probe handles this call */
		return SKIP_RETURN;

	call->sp = 0;
	call->nested = 0;
	count(COUNT_ALLOCATIONS);
	call->form = cookie & COOKIE_FORM;
	call->cookie = cookie;
	read_arguments(call, regs, &old_pointer);
	sample_call(thread, tensor, regs, tgid);

	if (!call->interval && needs_no_return(call)) {
		thread->malloc_sp = REGS_SP(regs);
		thread->malloc_return = return_address(regs);
		thread->malloc_code = REGS_IP(regs);
		return SKIP_RETURN;
	}

	stash_old_object(call, tgid, old_pointer);
	call->sp = REGS_SP(regs);
	return cookie & COOKIE_EXITS ? SKIP_RETURN : FOLLOW_RETURN;
}

/* Adds a sampled allocation to the live map and to the tallies. */
static __always_inline void add_allocation(const struct call *call, __u32 tgid, __u64 address)
{
	struct address key = make_address(tgid, address);
	struct allocation allocation = {
		.size = call->size,
		.born = bpf_ktime_get_ns(),
		.stack = call->stack,
		.interval = call->interval,
		.kind = call->kind,
	};
	struct tally_key tally = {
		.stack = call->stack,
		.tgid = tgid,
		.interval = call->interval,
		.kind = call->kind,
		.size_class = size_class(call->size),
	};

	count(COUNT_SAMPLES);
	charge_current(costs.sample);
	if (allocation.kind == KIND_TENSOR)
		live_add(&tensors, TABLE_TENSORS, &key, &allocation);
	else
		live_add(&live, TABLE_LIVE, &key, &allocation);

	tally_add(&tally, call->size, 0);
}

/* Handles the return of the call that the thread was in. */
static __always_inline void heap_call_return(struct call *call, __u32 tgid, __u64 result)
{
	__u64 address = allocated_address(call, result);

	call->sp = 0;
	if (!address && call->old_was_live && keeps_old_object(call))
		live_add(&live, TABLE_LIVE, &call->old_address, &call->old);

	if (!call->interval)
		return;
	if (address)
		add_allocation(call, tgid, address);
	else
		count(COUNT_FAILED);
	count(COUNT_ENDED);
}

/* Handles a return probe. */
static __always_inline int heap_return(struct pt_regs *regs)
{
	__u32 tgid = current_tgid();
	struct thread *thread;
	struct call *call;

	if (!is_traced(tgid))
		return 0;
	thread = current_thread();
	if (!thread)
		return 0;

	count(COUNT_RETURNS);
	charge(thread, costs.follow);
	call = &thread->call;
	if (is_under_way(call) && REGS_SP(regs) - RETURN_SLOT == call->sp)
		heap_call_return(call, tgid, REGS_RESULT(regs));
	return 0;
}

/* Handles a probe at an instruction that returns, where the stack pointer is as at the entry. */
static __always_inline int heap_exit(struct thread *thread, struct pt_regs *regs, __u32 tgid,
				     enum call_form form)
{
	__u64 result = REGS_RESULT(regs), pointer = REGS_ARG1(regs);
	struct call *call = &thread->call;

	/* Both are read: the verifier refuses to read the one of a computed offset. */
	asm volatile("" : "+r"(result), "+r"(pointer));
	if (is_under_way(call) && call->cookie & COOKIE_EXITS && REGS_SP(regs) == call->sp)
		heap_call_return(call, tgid, form == CALL_EXIT ? result : pointer);
	return SKIP_RETURN;
}

/* Counts an entry probe. Source heap, while open, probes functions that return aligned memory as
 * well: both probes share a trap, which counts once. */
static __always_inline void count_entry(struct thread *thread, enum probe_cookie cookie)
{
	if (cookie & COOKIE_TENSOR) {
		count(COUNT_TENSOR_ENTRIES);
		if (cookie & COOKIE_ALIGNED && interval)
			return;
	}

	count(COUNT_ENTRIES);
	if (cookie & COOKIE_STEPPED)
		count(COUNT_STEPPED);
	charge(thread, cookie & COOKIE_STEPPED ? costs.stepped : costs.entry);
}

/* Handles an entry probe, as its cookie shows. */
static __always_inline int heap_entry(struct pt_regs *regs)
{
	enum probe_cookie cookie = bpf_get_attach_cookie(regs);
	enum call_form form = cookie & COOKIE_FORM;
	bool is_tensor = cookie & COOKIE_TENSOR;
	__u32 tgid = current_tgid();
	struct thread *thread;

	if (!is_traced(tgid))
		return SKIP_RETURN;
	thread = current_thread();
	if (!thread)
		return SKIP_RETURN;
	count_entry(thread, cookie);

	if (form == CALL_EXIT || form == CALL_EXIT_MEMSET)
		return heap_exit(thread, regs, tgid, form);
	if (!(is_tensor ? tensor_interval : interval)) /* calls under way may still return */
		return SKIP_RETURN;

	if (form == CALL_ALLOC_CPU)
		return tensor_begin(thread, regs, tgid);
	if (form == CALL_FREE && is_tensor)
		return tensor_free(regs, tgid);
	if (form == CALL_FREE)
		return heap_free(thread, regs, tgid, cookie);
	return heap_allocate(thread, regs, tgid, cookie);
}

SEC("uprobe")
int heap_on_entry(struct pt_regs *ctx)
{
	keep_task_stack(ctx, &no_programs);
	heap_entry(ctx);
	return 0;
}

SEC("uretprobe")
int heap_on_return(struct pt_regs *ctx)
{
	keep_task_stack(ctx, &no_programs);
	return heap_return(ctx);
}

/* Both programs above in one, for uprobe sessions (Linux 6.13). On older kernels user space removes
 * this program, and with it the kfunc that it calls. Where that kfunc takes no arguments, user
 * space corrects this prototype. */
extern bool bpf_session_is_return(void *ctx) __attribute__((section(".ksyms")));

SEC("uprobe")
int heap_session(struct pt_regs *ctx)
{
	keep_task_stack(ctx, &no_sessions);
	return bpf_session_is_return(ctx) ? heap_return(ctx) : heap_entry(ctx);
}
