/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `heap`: malloc and its relatives. The decision to sample and the stack are taken at entry, the address at
 * return; free() needs its entry alone. Of what is asked for a tensor, the decision and the stack are the tensor's. */
#pragma once

#include "attach.h"
#include "source/tensor.bpf.h"

/* Whether a call that is under way frees its own old object, which has been taken out already. */
static __always_inline bool is_own_free(struct pt_regs *regs, __u64 pointer)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);
	struct call *call;

	if (!thread)
		return false;
	call = &thread->call;
	return is_under_way(call) && call->old_address.address == pointer &&
	       is_nested(call, REGS_SP(regs), COOKIE_NONE);
}

static __always_inline int heap_free(struct pt_regs *regs, __u32 tgid, enum probe_cookie cookie)
{
	struct address key = make_address(tgid, REGS_ARG1(regs));

	if (!key.address || ((cookie & COOKIE_CALLED) && is_own_free(regs, key.address)))
		return SKIP_RETURN;
	count(COUNT_FREES);
	if (!live_remove(&live, &key, NULL))
		count(COUNT_FREES_UNTRACKED);
	return SKIP_RETURN;
}

/* The old object of realloc leaves the live map before the allocator can hand its address to another thread; if the
 * call fails, it comes back. */
static __always_inline void set_old_aside(struct call *call, __u32 tgid, __u64 pointer)
{
	call->old_address = make_address(tgid, pointer);
	call->had_old = pointer && live_remove(&live, &call->old_address, &call->old);
}

/* Whether what has been called needs no return probe, though it is the allocator's: malloc calls nothing that is
 * probed, and nobody looks at what is called for a tensor while source heap is closed. */
static __always_inline bool calls_nothing(const struct call *call)
{
	return call->form == CALL_MALLOC || call->cookie & COOKIE_THROWS || (call->kind == KIND_TENSOR && !interval);
}

/* Takes the decision to sample a call, and its stack, or takes them over from the tensor that it serves. */
static __always_inline void sample_call(struct thread *thread, struct tensor *tensor, struct pt_regs *regs, __u32 tgid)
{
	struct call *call = &thread->call;
	__u32 mean = interval;

	call->interval = 0;
	call->kind = tensor ? KIND_TENSOR : KIND_HEAP;
	call->epoch = tensor ? tensor->epoch : epoch;
	if (tensor) {
		tensor->sp = 0; /* it asks once */
		call->size = tensor->size;
		call->stack = tensor->stack;
		call->interval = tensor->interval;
	} else if (call->size != ~0ULL && take_sample(&thread->sampler, mean, call->size)) {
		call->interval = mean;
		call->stack = capture_stack(regs, tgid, true, COUNT_WALK_NS);
	}
}

static __always_inline int heap_allocate(struct pt_regs *regs, __u32 tgid, enum probe_cookie cookie)
{
	struct thread *thread = current_thread();
	struct tensor *tensor = NULL;
	__u64 old_pointer = 0;
	struct call *call;

	if (!thread)
		return SKIP_RETURN;
	call = &thread->call;
	if (belongs(call, REGS_SP(regs), cookie))
		return SKIP_RETURN;
	if (cookie & COOKIE_ALIGNED)
		tensor = pending_tensor(thread, REGS_SP(regs));
	if (!tensor != !(cookie & COOKIE_TENSOR)) /* each source's probe there does its own part */
		return SKIP_RETURN;
	call->sp = 0;
	count(COUNT_ALLOCATIONS);
	call->form = cookie & COOKIE_FORM;
	call->cookie = cookie;
	read_arguments(call, regs, &old_pointer);
	sample_call(thread, tensor, regs, tgid);
	if (!call->interval && calls_nothing(call)) {
		thread->malloc_sp = REGS_SP(regs);
		thread->malloc_return = return_address(regs);
		return SKIP_RETURN;
	}
	set_old_aside(call, tgid, old_pointer);
	call->sp = REGS_SP(regs);
	return cookie & COOKIE_THROWS ? SKIP_RETURN : FOLLOW_RETURN;
}

static __always_inline void keep_allocation(const struct call *call, __u32 tgid, __u64 address)
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
	if (allocation.kind == KIND_TENSOR)
		live_add(&tensors, &key, &allocation);
	else
		live_add(&live, &key, &allocation);
	tally_add(&tally, call->size);
}

/* The call that a thread was in has returned. */
static __always_inline void heap_finish(struct call *call, __u32 tgid, __u64 result)
{
	__u64 address = allocated_address(call, result);

	call->sp = 0;
	if (!address && call->had_old && keeps_old(call))
		live_add(&live, &call->old_address, &call->old);
	if (!call->interval)
		return;
	if (address)
		keep_allocation(call, tgid, address);
	else
		count(COUNT_FAILED);
}

static __always_inline int heap_return(struct pt_regs *regs)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);
	__u32 tgid = current_tgid();
	struct call *call;

	if (!thread || !is_traced(tgid))
		return 0;
	count(COUNT_RETURNS);
	call = &thread->call;
	if (is_under_way(call) && REGS_SP(regs) - RETURN_SLOT == call->sp)
		heap_finish(call, tgid, REGS_RESULT(regs));
	return 0;
}

/* A thread stands at an instruction that returns: what is on top of its stack is what was there at the entry. */
static __always_inline int heap_exit(struct pt_regs *regs, __u32 tgid)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);
	struct call *call;

	if (!thread)
		return SKIP_RETURN;
	call = &thread->call;
	if (is_under_way(call) && call->cookie & COOKIE_THROWS && REGS_SP(regs) == call->sp)
		heap_finish(call, tgid, REGS_RESULT(regs));
	return SKIP_RETURN;
}

/* Where source heap is open, it has a probe on what gives aligned memory, too: they share a trap, which counts once. */
static __always_inline void count_entry(enum probe_cookie cookie)
{
	if (cookie & COOKIE_TENSOR) {
		count(COUNT_TENSOR_ENTRIES);
		if (cookie & COOKIE_ALIGNED && interval)
			return;
	}
	count(COUNT_ENTRIES);
	if (cookie & COOKIE_STEPPED)
		count(COUNT_STEPPED);
}

static __always_inline int heap_entry(struct pt_regs *regs)
{
	enum probe_cookie cookie = bpf_get_attach_cookie(regs);
	enum call_form form = cookie & COOKIE_FORM;
	bool is_tensor = cookie & COOKIE_TENSOR;
	__u32 tgid = current_tgid();

	if (!is_traced(tgid))
		return SKIP_RETURN;
	count_entry(cookie);
	if (!(is_tensor ? tensor_interval : interval))
		return SKIP_RETURN;
	if (form == CALL_EXIT)
		return heap_exit(regs, tgid);
	if (form == CALL_ALLOC_CPU)
		return tensor_begin(regs, tgid);
	if (form == CALL_FREE)
		return is_tensor ? tensor_free(regs, tgid) : heap_free(regs, tgid, cookie);
	return heap_allocate(regs, tgid, cookie);
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

/* Both of the above in one link, where the kernel has uprobe sessions (6.13). User space leaves this program out
 * elsewhere, with the kernel function it calls; where that function takes no arguments, it corrects this prototype. */
extern bool bpf_session_is_return(void *ctx) __attribute__((section(".ksyms")));

SEC("uprobe")
int heap_session(struct pt_regs *ctx)
{
	keep_task_stack(ctx, &no_sessions);
	return bpf_session_is_return(ctx) ? heap_return(ctx) : heap_entry(ctx);
}
