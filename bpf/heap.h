/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `heap`: malloc and its relatives, and source `tensor`: what torch allocates for tensors, by malloc's. The
 * decision to sample and the stack are taken at entry, the address at return; free() needs its entry alone. Of a tensor
 * what malloc does for it is a call that the allocator makes itself. */
#pragma once

#include "call.h"
#include "live.h"
#include "stack.h"

#define FOLLOW_RETURN 0 /* what the entry of a uprobe session answers: run the return probe, */
#define SKIP_RETURN 1   /* or save its price */

static __always_inline int tensor_free(struct pt_regs *regs, __u32 tgid)
{
	struct address key = make_address(tgid, REGS_ARG1(regs));

	live_remove(&tensors, &key, NULL);
	return SKIP_RETURN;
}

/* Whether a call that is under way frees its own old object, which has been taken out already. */
static __always_inline bool is_own_free(struct pt_regs *regs, __u64 pointer)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);
	struct call *call;

	if (!thread)
		return false;
	call = &thread->call;
	return call->sp && call->epoch == epoch && call->old_address.address == pointer &&
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

/* Whether what is called now belongs to the call that the thread is in. What throws calls nothing that is probed before
 * it has failed. */
static __always_inline bool belongs(const struct call *call, __u64 sp, enum probe_cookie cookie)
{
	if (!call->sp || call->epoch != epoch)
		return false;
	if (call->cookie & COOKIE_THROWS) {
		count(COUNT_FAILED);
		return false;
	}
	if (is_nested(call, sp, cookie))
		return true;
	count(DROP_MISSED_RETURN);
	return false;
}

/* Whether what has been called needs no return probe, though it is the allocator's: malloc calls nothing that is
 * probed, and nobody looks at what alloc_cpu calls while source heap is closed. */
static __always_inline bool calls_nothing(const struct call *call)
{
	return call->cookie & COOKIE_TENSOR ? !interval : call->form == CALL_MALLOC || call->cookie & COOKIE_THROWS;
}

static __always_inline int heap_allocate(struct pt_regs *regs, __u32 tgid, enum probe_cookie cookie, __u32 mean)
{
	struct thread *thread = current_thread();
	struct sampler *sampler;
	__u64 old_pointer = 0;
	bool is_tensor = cookie & COOKIE_TENSOR;
	struct call *call;

	if (!thread)
		return SKIP_RETURN;
	call = &thread->call;
	if (belongs(call, REGS_SP(regs), cookie))
		return SKIP_RETURN;
	call->sp = 0;
	count(COUNT_ALLOCATIONS);
	call->form = cookie & COOKIE_FORM;
	call->cookie = cookie;
	call->epoch = epoch;
	call->interval = 0;
	read_arguments(call, regs, &old_pointer);
	sampler = is_tensor ? &thread->tensor_sampler : &thread->sampler;
	if (call->size != ~0ULL && take_sample(sampler, mean, call->size)) {
		call->interval = mean;
		call->stack = capture_stack(regs, tgid, true);
	} else if (calls_nothing(call)) {
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
		.kind = call->cookie & COOKIE_TENSOR ? KIND_TENSOR : KIND_HEAP,
	};

	count(COUNT_SAMPLES);
	if (allocation.kind == KIND_TENSOR)
		live_add(&tensors, &key, &allocation);
	else
		live_add(&live, &key, &allocation);
	tally_add(tgid, &allocation);
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
	if (call->sp && call->epoch == epoch && REGS_SP(regs) - RETURN_SLOT == call->sp)
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
	if (call->cookie & COOKIE_THROWS && call->epoch == epoch && REGS_SP(regs) == call->sp)
		heap_finish(call, tgid, REGS_RESULT(regs));
	return SKIP_RETURN;
}

static __always_inline int heap_entry(struct pt_regs *regs)
{
	enum probe_cookie cookie = bpf_get_attach_cookie(regs);
	enum call_form form = cookie & COOKIE_FORM;
	bool is_tensor = cookie & COOKIE_TENSOR;
	__u32 mean = is_tensor ? tensor_interval : interval;
	__u32 tgid = current_tgid();

	if (!is_traced(tgid))
		return SKIP_RETURN;
	count(COUNT_ENTRIES);
	if (cookie & COOKIE_STEPPED)
		count(COUNT_STEPPED);
	if (is_tensor)
		count(COUNT_TENSOR_ENTRIES);
	if (!mean)
		return SKIP_RETURN;
	if (form == CALL_EXIT)
		return heap_exit(regs, tgid);
	if (form == CALL_FREE)
		return is_tensor ? tensor_free(regs, tgid) : heap_free(regs, tgid, cookie);
	return heap_allocate(regs, tgid, cookie, mean);
}

/* Since 6.13 the kernel gives programs that use much stack one for each CPU, also those of uprobes, which can be
 * preempted by each other and then overwrite it. It does not where it finds a tail call, even one in code that the
 * verifier sees is dead and removes. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} no_programs SEC(".maps");

const volatile bool never = false;

static __always_inline void keep_task_stack(void *ctx)
{
	if (never)
		bpf_tail_call(ctx, &no_programs, 0);
}

SEC("uprobe")
int heap_on_entry(struct pt_regs *ctx)
{
	keep_task_stack(ctx);
	heap_entry(ctx);
	return 0;
}

SEC("uretprobe")
int heap_on_return(struct pt_regs *ctx)
{
	keep_task_stack(ctx);
	return heap_return(ctx);
}

/* Both of the above in one link, where the kernel has uprobe sessions (6.13). User space leaves this program out
 * elsewhere, with the kernel function it calls; where that function takes no arguments, it corrects this prototype. */
extern bool bpf_session_is_return(void *ctx) __attribute__((section(".ksyms")));

SEC("uprobe")
int heap_session(struct pt_regs *ctx)
{
	keep_task_stack(ctx);
	return bpf_session_is_return(ctx) ? heap_return(ctx) : heap_entry(ctx);
}
