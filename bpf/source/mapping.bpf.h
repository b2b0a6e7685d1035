/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `mapping`: the system calls that change the address space. User space keeps the intervals; here each call that
 * took effect becomes one notice. A release is stamped at entry and a creation at exit, so that an address which
 * another thread gets in between sorts right. */
#pragma once

#include "source/heap.bpf.h"

#define PROT_EXEC 4
#define MADV_DONTNEED 4
#define MADV_FREE 8
#define MADV_REMOVE 9
#define MADV_DONTNEED_LOCKED 24

#define ALLOCATOR_SPAN 4096 /* bytes of stack between malloc and the mmap it makes */

struct syscall_entry { /* /sys/kernel/tracing/events/syscalls/sys_enter_* /format */
	__u64 common;
	__s32 number;
};

struct syscall_exit {
	__u64 common;
	__s32 number;
	__s64 result;
};

/* Tells whether the thread is inside an allocator function. For a malloc that is not followed to its end: its return
 * address is still in its place, above the stack pointer. Where anybody probes the return of malloc, the kernel has put
 * the address of its trampoline there; user space knows that. (On arm64 the place is not known, so only calls that are
 * sampled are recognised.) */
static __always_inline void tell_allocator(struct notice *notice, const struct thread *thread, __u64 sp)
{
	if (is_under_way(&thread->call) && is_nested(&thread->call, sp, COOKIE_NONE)) {
		notice->by_allocator = 1;
		return;
	}
	if (sp >= thread->malloc_sp || thread->malloc_sp - sp > ALLOCATOR_SPAN)
		return;
	bpf_probe_read_user(&notice->malloc_slot, sizeof(notice->malloc_slot), (void *)thread->malloc_sp);
	notice->by_allocator = notice->malloc_slot && notice->malloc_slot == thread->malloc_return;
}

/* Takes the arguments of the call over. */
static __always_inline void read_call(struct notice *notice, struct pt_regs *regs)
{
	switch (notice->kind) {
	case NOTICE_MMAP:
		notice->length = SYSCALL_ARG2(regs);
		notice->protection = SYSCALL_ARG3(regs);
		notice->flags = SYSCALL_ARG4(regs);
		notice->descriptor = SYSCALL_ARG5(regs);
		break;
	case NOTICE_MUNMAP:
		notice->start = SYSCALL_ARG1(regs);
		notice->length = SYSCALL_ARG2(regs);
		break;
	case NOTICE_MREMAP:
		notice->old_start = SYSCALL_ARG1(regs);
		notice->old_length = SYSCALL_ARG2(regs);
		notice->length = SYSCALL_ARG3(regs);
		notice->flags = SYSCALL_ARG4(regs);
		break;
	case NOTICE_MADVISE:
		notice->start = SYSCALL_ARG1(regs);
		notice->length = SYSCALL_ARG2(regs);
		notice->protection = SYSCALL_ARG3(regs);
		break;
	default: /* brk tells by its result */
		break;
	}
}

/* Starts the notice of a mapping call. */
static __always_inline void mapping_begin(enum notice_kind kind, struct pt_regs *regs)
{
	__u32 tgid = current_tgid();
	struct thread *thread;
	struct notice *pending;

	if (!is_traced(tgid))
		return;
	thread = current_thread();
	if (!thread)
		return;
	pending = &thread->pending;
	__builtin_memset(pending, 0, sizeof(*pending));
	pending->kind = kind;
	pending->tgid = tgid;
	pending->time = bpf_ktime_get_ns();
	read_call(pending, regs);
	pending->stack = capture_stack(regs, tgid, false, COUNT_KERNEL_WALK_NS);
	tell_allocator(pending, thread, REGS_SP(regs));
}

/* The notice of the call that ends; NULL: its beginning was not seen. */
static __always_inline struct notice *mapping_end(enum notice_kind kind)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);

	if (!thread || thread->pending.kind != kind)
		return NULL;
	thread->pending.kind = NOTICE_STACK; /* no call is pending any more */
	return &thread->pending;
}

static __always_inline int mapping_send(struct notice *notice, enum notice_kind kind)
{
	bool is_code = kind == NOTICE_MMAP && notice->protection & PROT_EXEC; /* stacks may lead through it at once */

	notice->kind = kind;
	count(COUNT_MAPPING_CALLS);
	if (bpf_ringbuf_output(&notices, notice, sizeof(*notice), is_code ? NOTICE_URGENT : notice_patient()))
		count(DROP_NOTICES);
	notice->kind = NOTICE_STACK;
	return 0;
}

static __always_inline bool is_error(__s64 result)
{
	return result < 0 && result >= -4095;
}

static __always_inline bool releases(__u64 advice)
{
	return advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE ||
	       advice == MADV_DONTNEED_LOCKED;
}

static __always_inline enum notice_kind kind_of(__s32 number)
{
	switch (number) {
	case SYSCALL_MMAP:
		return NOTICE_MMAP;
	case SYSCALL_MUNMAP:
		return NOTICE_MUNMAP;
	case SYSCALL_MREMAP:
		return NOTICE_MREMAP;
	case SYSCALL_BRK:
		return NOTICE_BRK;
	case SYSCALL_MADVISE:
		return NOTICE_MADVISE;
	}
	return NOTICE_STACK;
}

/* One program for the five calls, as the verifier takes its time for each that takes stacks. The arguments come from
 * the registers: a tracepoint has no more of them than its call. */
SEC("tracepoint")
int enter_mapping(struct syscall_entry *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	enum notice_kind kind = kind_of(ctx->number);

	if (kind == NOTICE_STACK || (kind == NOTICE_MADVISE && !releases(SYSCALL_ARG3(regs))))
		return 0;
	mapping_begin(kind, regs);
	return 0;
}

SEC("tracepoint")
int exit_mapping(struct syscall_exit *ctx)
{
	enum notice_kind kind = kind_of(ctx->number);
	struct notice *notice = mapping_end(kind);

	if (!notice || (kind != NOTICE_BRK && is_error(ctx->result)))
		return 0;
	if (kind == NOTICE_MMAP || kind == NOTICE_MREMAP || kind == NOTICE_BRK) {
		notice->time = bpf_ktime_get_ns();
		notice->start = ctx->result; /* brk: the break as it is now, whether it moved or not */
	}
	return mapping_send(notice, kind);
}
