/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `mapping`: the system calls that change the address space. Each call that took effect
 * becomes one event; user space keeps the intervals. Calls that unmap are stamped at the entry and
 * calls that map at the exit, so that they sort right when another thread is given the address in
 * between. */
#pragma once

#include "call.h"
#include "regs.h"
#include "thread.h"

#include "unwind/stack.h"

/* include/uapi/asm-generic/mman-common.h */

#define PROT_EXEC 4
#define MADV_DONTNEED 4
#define MADV_FREE 8
#define MADV_REMOVE 9
#define MADV_DONTNEED_LOCKED 24

/* Stack between the entry of malloc and the mmap that it calls, in bytes. */
#define ALLOCATOR_STACK_BYTES 4096

/* Context of the tracepoints: /sys/kernel/tracing/events/syscalls/sys_enter_mmap/format */
struct syscall_entry {
	__u64 common;
	__s32 number;
};

struct syscall_exit {
	__u64 common;
	__s32 number;
	__s64 result;
};

/* Sets by_allocator if the thread is inside an allocator function. A malloc whose return is not
 * probed is still running if its return address is in place above the stack pointer. Where another
 * tool probes the return, the kernel's trampoline is there instead, which user space recognises by
 * malloc_slot. (On arm64 the return address need not be in memory: only sampled calls are
 * recognised.) */
static __always_inline void mark_by_allocator(struct event *event, const struct thread *thread,
					      __u64 sp)
{
	if (is_under_way(&thread->call) && is_nested(&thread->call, sp, COOKIE_NONE)) {
		event->by_allocator = 1;
		return;
	}

	if (sp >= thread->malloc_sp || thread->malloc_sp - sp > ALLOCATOR_STACK_BYTES)
		return;

	bpf_probe_read_user(&event->malloc_slot, sizeof(event->malloc_slot),
			    (void *)thread->malloc_sp);
	event->by_allocator = event->malloc_slot && event->malloc_slot == thread->malloc_return;
}

/* Copies the arguments of the system call. */
static __always_inline void read_syscall_arguments(struct event *event, struct pt_regs *regs)
{
	switch (event->kind) {
	case EVENT_MMAP:
		event->length = SYSCALL_ARG2(regs);
		event->protection = SYSCALL_ARG3(regs);
		event->flags = SYSCALL_ARG4(regs);
		event->descriptor = SYSCALL_ARG5(regs);
		break;
	case EVENT_MUNMAP:
		event->start = SYSCALL_ARG1(regs);
		event->length = SYSCALL_ARG2(regs);
		break;
	case EVENT_MREMAP:
		event->old_start = SYSCALL_ARG1(regs);
		event->old_length = SYSCALL_ARG2(regs);
		event->length = SYSCALL_ARG3(regs);
		event->flags = SYSCALL_ARG4(regs);
		break;
	case EVENT_MADVISE:
		event->start = SYSCALL_ARG1(regs);
		event->length = SYSCALL_ARG2(regs);
		event->protection = SYSCALL_ARG3(regs);
		break;
	default: /* brk: the result suffices */
		break;
	}
}

/* Begins the event of a mapping call. */
static __always_inline void mapping_enter(enum event_kind kind, struct pt_regs *regs)
{
	__u32 tgid = current_tgid();
	struct thread *thread;
	struct event *pending;

	if (!is_traced(tgid))
		return;
	thread = current_thread();
	if (!thread)
		return;

	charge(thread, costs.mapping);
	pending = &thread->pending;
	__builtin_memset(pending, 0, sizeof(*pending));
	pending->kind = kind;
	pending->tgid = tgid;
	pending->time = bpf_ktime_get_ns();

	read_syscall_arguments(pending, regs);
	pending->stack = capture_stack(regs, tgid, false, COUNT_KERNEL_WALK_NS);
	mark_by_allocator(pending, thread, REGS_SP(regs));
}

/* Returns the event of the call that ends; NULL: its entry has not been seen. */
static __always_inline struct event *mapping_exit(enum event_kind kind)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);

	if (!thread || thread->pending.kind != kind)
		return NULL;

	thread->pending.kind = EVENT_STACK; /* no call is pending */
	return &thread->pending;
}

static __always_inline int send_mapping_event(struct event *event, enum event_kind kind)
{
	/* User space must know code before stacks lead through it. */
	bool is_code = kind == EVENT_MMAP && event->protection & PROT_EXEC;

	event->kind = kind;
	count(COUNT_MAPPING_CALLS);

	if (bpf_ringbuf_output(&events, event, sizeof(*event),
			       is_code ? WAKE_READER : lazy_wakeup()))
		count(DROP_EVENTS);

	event->kind = EVENT_STACK;
	return 0;
}

/* Returns whether a system call returned -errno (IS_ERR_VALUE, include/linux/err.h). */
static __always_inline bool is_error(__s64 result)
{
	return result < 0 && result >= -4095;
}

/* Returns whether madvise with this advice frees pages. */
static __always_inline bool is_release(__u64 advice)
{
	return advice == MADV_DONTNEED || advice == MADV_FREE || advice == MADV_REMOVE ||
	       advice == MADV_DONTNEED_LOCKED;
}

/* Returns the event of a system call; EVENT_STACK: none. */
static __always_inline enum event_kind event_of_syscall(__s32 number)
{
	switch (number) {
	case SYSCALL_MMAP:
		return EVENT_MMAP;
	case SYSCALL_MUNMAP:
		return EVENT_MUNMAP;
	case SYSCALL_MREMAP:
		return EVENT_MREMAP;
	case SYSCALL_BRK:
		return EVENT_BRK;
	case SYSCALL_MADVISE:
		return EVENT_MADVISE;
	}
	return EVENT_STACK;
}

/* One program serves all five system calls: the verifier needs long for each program that walks
 * stacks. It takes the arguments from the registers, as the context of a tracepoint holds no more
 * than those of its own call. */
SEC("tracepoint")
int enter_mapping(struct syscall_entry *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	enum event_kind kind = event_of_syscall(ctx->number);

	if (kind == EVENT_STACK || (kind == EVENT_MADVISE && !is_release(SYSCALL_ARG3(regs))))
		return 0;
	mapping_enter(kind, regs);
	return 0;
}

SEC("tracepoint")
int exit_mapping(struct syscall_exit *ctx)
{
	enum event_kind kind = event_of_syscall(ctx->number);
	struct event *event = mapping_exit(kind);

	if (!event || (kind != EVENT_BRK && is_error(ctx->result)))
		return 0;

	if (kind == EVENT_MMAP || kind == EVENT_MREMAP || kind == EVENT_BRK) {
		event->time = bpf_ktime_get_ns();
		event->start = ctx->result; /* brk: the current break, moved or not */
	}

	return send_mapping_event(event, kind);
}
