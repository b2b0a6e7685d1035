/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `mapping`: the system calls that change the address space. User space keeps the intervals; here each call that
 * took effect becomes one notice. A release is stamped at entry and a creation at exit, so that an address which
 * another thread gets in between sorts right. */
#pragma once

#include "heap.h"

#define MADV_DONTNEED 4
#define MADV_FREE 8
#define MADV_REMOVE 9
#define MADV_DONTNEED_LOCKED 24

#define ALLOCATOR_SPAN 4096 /* bytes of stack between malloc and the mmap it makes */

struct syscall_entry { /* /sys/kernel/tracing/events/syscalls/sys_enter_* /format */
	__u64 common;
	__u64 number;
	__u64 args[6];
};

struct syscall_exit {
	__u64 common;
	__u64 number;
	__s64 result;
};

/* Tells whether the thread is inside an allocator function. For a malloc that is not followed to its end: its return
 * address is still in its place, above the stack pointer. Where anybody probes the return of malloc, the kernel has put
 * the address of its trampoline there; user space knows that. (On arm64 the place is not known, so only calls that are
 * sampled are recognised.) */
static __always_inline void tell_allocator(struct notice *notice, const struct thread *thread, __u64 sp)
{
	if (thread->call.sp && is_nested(&thread->call, sp, CALL_NONE)) {
		notice->by_allocator = 1;
		return;
	}
	if (sp >= thread->malloc_sp || thread->malloc_sp - sp > ALLOCATOR_SPAN)
		return;
	bpf_probe_read_user(&notice->malloc_slot, sizeof(notice->malloc_slot), (void *)thread->malloc_sp);
	notice->by_allocator = notice->malloc_slot && notice->malloc_slot == thread->malloc_return;
}

/* Starts the notice of a mapping call; NULL: not a traced process. */
static __always_inline struct notice *mapping_begin(enum notice_kind kind)
{
	__u32 tgid = current_tgid();
	struct thread *thread;
	struct pt_regs *regs;

	if (!is_traced(tgid))
		return NULL;
	thread = current_thread();
	if (!thread)
		return NULL;
	regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__builtin_memset(&thread->pending, 0, sizeof(thread->pending));
	thread->pending.kind = kind;
	thread->pending.tgid = tgid;
	thread->pending.time = bpf_ktime_get_ns();
	thread->pending.stack = capture_stack(regs, tgid);
	tell_allocator(&thread->pending, thread, REGS_SP(regs));
	return &thread->pending;
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
	notice->kind = kind;
	count(COUNT_MAPPING_CALLS);
	if (bpf_ringbuf_output(&notices, notice, sizeof(*notice), 0))
		count(DROP_NOTICES);
	notice->kind = NOTICE_STACK;
	return 0;
}

static __always_inline bool is_error(__s64 result)
{
	return result < 0 && result >= -4095;
}

SEC("tracepoint/syscalls/sys_enter_mmap")
int enter_mmap(struct syscall_entry *ctx)
{
	struct notice *notice = mapping_begin(NOTICE_MMAP);

	if (!notice)
		return 0;
	notice->length = ctx->args[1];
	notice->protection = ctx->args[2];
	notice->flags = ctx->args[3];
	notice->descriptor = ctx->args[4];
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_mmap")
int exit_mmap(struct syscall_exit *ctx)
{
	struct notice *notice = mapping_end(NOTICE_MMAP);

	if (!notice || is_error(ctx->result))
		return 0;
	notice->time = bpf_ktime_get_ns();
	notice->start = ctx->result;
	return mapping_send(notice, NOTICE_MMAP);
}

SEC("tracepoint/syscalls/sys_enter_munmap")
int enter_munmap(struct syscall_entry *ctx)
{
	struct notice *notice = mapping_begin(NOTICE_MUNMAP);

	if (!notice)
		return 0;
	notice->start = ctx->args[0];
	notice->length = ctx->args[1];
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_munmap")
int exit_munmap(struct syscall_exit *ctx)
{
	struct notice *notice = mapping_end(NOTICE_MUNMAP);

	if (!notice || is_error(ctx->result))
		return 0;
	return mapping_send(notice, NOTICE_MUNMAP);
}

SEC("tracepoint/syscalls/sys_enter_mremap")
int enter_mremap(struct syscall_entry *ctx)
{
	struct notice *notice = mapping_begin(NOTICE_MREMAP);

	if (!notice)
		return 0;
	notice->old_start = ctx->args[0];
	notice->old_length = ctx->args[1];
	notice->length = ctx->args[2];
	notice->flags = ctx->args[3];
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_mremap")
int exit_mremap(struct syscall_exit *ctx)
{
	struct notice *notice = mapping_end(NOTICE_MREMAP);

	if (!notice || is_error(ctx->result))
		return 0;
	notice->time = bpf_ktime_get_ns();
	notice->start = ctx->result;
	return mapping_send(notice, NOTICE_MREMAP);
}

SEC("tracepoint/syscalls/sys_enter_brk")
int enter_brk(struct syscall_entry *ctx)
{
	mapping_begin(NOTICE_BRK);
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_brk")
int exit_brk(struct syscall_exit *ctx)
{
	struct notice *notice = mapping_end(NOTICE_BRK);

	if (!notice)
		return 0;
	notice->time = bpf_ktime_get_ns();
	notice->start = ctx->result; /* the break as it is now, whether it moved or not */
	return mapping_send(notice, NOTICE_BRK);
}

SEC("tracepoint/syscalls/sys_enter_madvise")
int enter_madvise(struct syscall_entry *ctx)
{
	__u64 advice = ctx->args[2];
	struct notice *notice;

	if (advice != MADV_DONTNEED && advice != MADV_FREE && advice != MADV_REMOVE && advice != MADV_DONTNEED_LOCKED)
		return 0;
	notice = mapping_begin(NOTICE_MADVISE);
	if (!notice)
		return 0;
	notice->start = ctx->args[0];
	notice->length = ctx->args[1];
	notice->protection = advice;
	return 0;
}

SEC("tracepoint/syscalls/sys_exit_madvise")
int exit_madvise(struct syscall_exit *ctx)
{
	struct notice *notice = mapping_end(NOTICE_MADVISE);

	if (!notice || is_error(ctx->result))
		return 0;
	return mapping_send(notice, NOTICE_MADVISE);
}
