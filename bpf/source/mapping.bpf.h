/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `mapping`: the system calls that change the address space. User space keeps the intervals.
 * Calls that unmap are stamped at the entry and calls that map at the exit, so that they sort right
 * when another thread is given the address in between.
 *
 * A mapping waits in `recent_mappings` until user space reads it. If a munmap of exactly its range
 * comes first, both calls are counted in `mapping_pairs` and reach user space no other way. Nor do
 * the segments that a loader maps over a recent mapping of its library. Calls of madvise are
 * counted by their ranges. All other calls are events. */
#pragma once

#include "call.h"
#include "live.h"
#include "regs.h"
#include "thread.h"

#include "unwind/running.h"
#include "unwind/site.h"

/* include/uapi/asm-generic/mman-common.h */

#define PROT_EXEC 4
#define MAP_FIXED 0x10
#define MADV_DONTNEED 4
#define MADV_FREE 8
#define MADV_REMOVE 9
#define MADV_DONTNEED_LOCKED 24

#define ENOMEM 12 /* include/uapi/asm-generic/errno-base.h */

#define ADDRESS_BITS 56 /* of user space, at most */

#define BRK_PERIOD_NS 100000 /* between two events of a thread, at least */

/* Stack between the entry of malloc and the mmap that it calls, in bytes. */
#define ALLOCATOR_STACK_BYTES 4096
/* Code between malloc and the functions that it ends in, by tail calls, at most. glibc has mmap
 * further away. */
#define ALLOCATOR_CODE_BYTES (128ULL << 10)

/* Mappings that user space has not read yet, by their start. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct address);
	__type(value, struct recent_mapping);
} recent_mappings SEC(".maps");

/* Mappings that were gone before user space read them. User space sets the size before it loads the
 * map. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct mapping_pair);
	__type(value, struct tally);
} mapping_pairs SEC(".maps");

/* Ranges whose memory madvise has released since user space read them last. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct range);
	__type(value, struct release);
} released_ranges SEC(".maps");

/* Incremented by each call that may cut or cover a mapping in `recent_mappings`: the two calls of
 * such a mapping are no pair. */
volatile __u64 mapping_cuts = 0;

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

/* Returns whether the function in the walk is the thread's last malloc, whose return is not probed.
 * Another function may have been called from the same place, with the same stack pointer. The
 * kernel may have replaced the return address, for another tool. */
static __always_inline bool is_last_malloc(const struct walk *walk, const struct thread *thread)
{
	if (walk->address - thread->malloc_code + ALLOCATOR_CODE_BYTES > 2 * ALLOCATOR_CODE_BYTES)
		return false;
	return walk->pc == thread->malloc_return ||
	       replaced_return(walk->slot) == thread->malloc_return;
}

/* Returns whether the thread is inside an allocator function whose entry was probed. */
static __always_inline bool is_by_allocator(const struct thread *thread, struct pt_regs *regs,
					    __u32 tgid)
{
	bool is_followed =
		is_under_way(&thread->call) && is_nested(&thread->call, REGS_SP(regs), COOKIE_NONE);
	__u64 sp = is_followed ? thread->call.sp : thread->malloc_sp;
	struct walk *walk;

	if (!is_followed && (!interval || !is_of_epoch(&thread->call) || REGS_SP(regs) >= sp ||
			     sp - REGS_SP(regs) > ALLOCATOR_STACK_BYTES))
		return false;

	walk = start_walk(regs, tgid);
	if (!walk)
		return false;
	switch (find_running(walk, sp)) {
	case RUNNING_YES:
		return is_followed || is_last_malloc(walk, thread);
	case RUNNING_UNKNOWN:
		return is_followed || saved_return_address(regs, sp) == thread->malloc_return;
	}
	return false;
}

/* Sends an event to user space. */
static __always_inline void send_mapping_event(struct event *event)
{
	struct usage *usage = usage_of(event->tgid);

	if (!may_send(usage, sizeof(*event)) ||
	    bpf_ringbuf_output(&events, event, sizeof(*event), lazy_wakeup()))
		lose(usage, DROP_EVENTS, 0);
}

/* Sends the event of a call that may cut or cover recent mappings. */
static __always_inline void send_cut(struct event *event)
{
	__sync_fetch_and_add(&mapping_cuts, 1);
	send_mapping_event(event);
}

/* Begins the event of a call. */
static __always_inline struct event *begin_event(struct thread *thread, enum event_kind kind,
						 __u32 tgid)
{
	struct event *event = &thread->mapping.event;

	charge(thread, costs.mapping);
	if (kind != EVENT_BRK) /* it maps nothing that user space has an interval of */
		count(COUNT_MAPPING_CALLS);
	__builtin_memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->tgid = tgid;
	event->time = bpf_ktime_get_ns();
	return event;
}

/* Sets the stack of an event. A call that the allocator makes needs none: its objects have their
 * own stacks, if they are sampled. */
static __always_inline void set_stack(struct event *event, const struct thread *thread,
				      struct pt_regs *regs)
{
	event->by_allocator = is_by_allocator(thread, regs, event->tgid);
	if (!event->by_allocator)
		event->stack = site_stack(regs, event->tgid, event->length, event->time);
}

static __always_inline __u64 whole_pages(__u64 length)
{
	return (length + page_size - 1) & ~(page_size - 1);
}

/* Keeps a new mapping until user space reads it or it is unmapped. */
static __always_inline void keep_recent(struct thread *thread)
{
	struct recent_mapping *mapping = &thread->mapping;
	struct address key = make_address(mapping->event.tgid, mapping->event.start);

	mapping->cuts = mapping_cuts;
	if (bpf_map_update_elem(&recent_mappings, &key, mapping, BPF_NOEXIST))
		send_cut(&mapping->event); /* the map is full, or has an earlier one */
	else if (mapping->event.descriptor >= 0)
		thread->file_start = mapping->event.start;
}

/* Returns whether a mapping at a fixed address lies within the recent mapping of a file that the
 * thread has made last. A loader maps a library as a whole, and then its segments over that. */
static __always_inline bool is_segment(const struct thread *thread, __u32 tgid, __u64 start,
				       __u64 length)
{
	struct address key = make_address(tgid, thread->file_start);
	struct recent_mapping *file;

	if (start < thread->file_start)
		return false;
	file = bpf_map_lookup_elem(&recent_mappings, &key);
	return file && start - thread->file_start + length <= whole_pages(file->event.length);
}

static __always_inline void on_mmap(struct thread *thread, struct pt_regs *regs, __u32 tgid,
				    __u64 start)
{
	struct event *event = begin_event(thread, EVENT_MMAP, tgid);

	event->start = start;
	event->length = SYSCALL_ARG2(regs);
	event->protection = SYSCALL_ARG3(regs);
	event->flags = SYSCALL_ARG4(regs);
	event->descriptor = SYSCALL_ARG5(regs);

	/* User space must know code before stacks lead through it. */
	if (event->protection & PROT_EXEC)
		send_request(EVENT_NEW_CODE, tgid, tgid | REQUEST_NEW_CODE, start);
	if (event->flags & MAP_FIXED && is_segment(thread, tgid, start, event->length))
		return;

	set_stack(event, thread, regs);
	if (event->flags & MAP_FIXED)
		send_cut(event);
	else
		keep_recent(thread);
}

static __always_inline void on_mremap(struct thread *thread, struct pt_regs *regs, __u32 tgid,
				      __u64 start)
{
	struct event *event = begin_event(thread, EVENT_MREMAP, tgid);

	event->start = start;
	event->old_start = SYSCALL_ARG1(regs);
	event->old_length = SYSCALL_ARG2(regs);
	event->length = SYSCALL_ARG3(regs);
	event->flags = SYSCALL_ARG4(regs);
	set_stack(event, thread, regs);
	send_cut(event);
}

/* At the exit of a brk that has moved the program break, and is no query. Only the allocator moves
 * it, whose objects have stacks of their own where they are probed. Otherwise the stack of the call
 * shows who makes the main heap grow. */
static __always_inline void on_brk(struct thread *thread, struct pt_regs *regs, __u32 tgid,
				   __u64 end)
{
	__u64 now = bpf_ktime_get_ns();
	struct event *event;

	if (SYSCALL_ARG1(regs) != end)
		return;
	if (now - thread->brk_time < BRK_PERIOD_NS) /* the next event has the growth */
		return;
	thread->brk_time = now;

	event = begin_event(thread, EVENT_BRK, tgid);
	event->start = end;
	event->stack = site_stack(regs, tgid, 0, event->time);
	send_mapping_event(event);
}

/* Sends the event of a call that has released the memory of a range. */
static __always_inline void send_release(const struct range *range, __u64 time)
{
	struct event event = {
		.kind = EVENT_MADVISE,
		.tgid = range->tgid,
		.time = time,
		.start = range->start,
		.length = range->length,
		.flags = range->flags,
		.calls = 1,
	};

	send_mapping_event(&event);
}

/* Counts a call that has released the memory of a range. Threads that end release their stacks: a
 * thread without state gets none for this. */
static __always_inline void on_madvise(struct pt_regs *regs, __u32 tgid, __u32 flags)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);
	struct range key = {
		.start = SYSCALL_ARG1(regs),
		.length = SYSCALL_ARG2(regs),
		.tgid = tgid,
		.flags = flags,
	};
	struct release *release = bpf_map_lookup_elem(&released_ranges, &key), none = {};
	__u64 now = bpf_ktime_get_ns();

	count(COUNT_MAPPING_CALLS);
	if (thread)
		charge(thread, costs.mapping);

	if (!release) {
		bpf_map_update_elem(&released_ranges, &key, &none, BPF_NOEXIST);
		release = bpf_map_lookup_elem(&released_ranges, &key);
	}
	if (!release) {
		send_release(&key, now); /* the map is full */
		return;
	}

	__sync_fetch_and_add(&release->calls, 1);
	release->time = now;
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

/* At the exit of madvise. Where parts of the range are not mapped, it has released the others and
 * returns -ENOMEM. */
static __always_inline void exit_madvise(struct pt_regs *regs, __u32 tgid, __s64 result)
{
	__u64 advice = SYSCALL_ARG3(regs);
	__u32 flags = 0;

	if (is_error(result) && result != -ENOMEM)
		return;
	if (!is_release(advice))
		return;

	if (advice == MADV_FREE)
		flags |= RELEASE_LAZY;
	if (result == -ENOMEM)
		flags |= RELEASE_HOLES;
	on_madvise(regs, tgid, flags);
}

/* At the exit of mmap, mremap, madvise and brk. One program serves them all: the verifier needs
 * long for each program that walks stacks. It takes the arguments from the registers, which the
 * system call leaves as they are. */
SEC("tracepoint")
int exit_mapping(struct syscall_exit *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__u32 tgid = current_tgid();
	struct thread *thread;

	if (!is_traced(tgid))
		return 0;
	if (ctx->number == SYSCALL_MADVISE) {
		exit_madvise(regs, tgid, ctx->result);
		return 0;
	}
	if (is_error(ctx->result))
		return 0;

	thread = current_thread();
	if (!thread)
		return 0;

	switch (ctx->number) {
	case SYSCALL_MMAP:
		on_mmap(thread, regs, tgid, ctx->result);
		break;
	case SYSCALL_MREMAP:
		on_mremap(thread, regs, tgid, ctx->result);
		break;
	case SYSCALL_BRK:
		on_brk(thread, regs, tgid, ctx->result);
		break;
	}
	return 0;
}

/* Takes the mapping that starts at an address out of the recent ones. Returns false if there is
 * none, or if user space takes it at this moment. */
static __always_inline bool take_recent(struct recent_mapping *to, __u32 tgid, __u64 start)
{
	struct address key = make_address(tgid, start);
	struct recent_mapping *mapping = bpf_map_lookup_elem(&recent_mappings, &key);

	if (!mapping)
		return false;
	*to = *mapping;
	return bpf_map_delete_elem(&recent_mappings, &key) == 0;
}

/* Counts a mapping that has been unmapped as a whole. */
static __always_inline void count_pair(const struct event *event)
{
	struct mapping_pair key = {
		.stack = event->stack,
		.tgid = event->tgid,
		.flags = event->flags,
		.descriptor = event->descriptor < 0 ? -1 : 0,
		.by_allocator = event->by_allocator,
	};
	struct tally *tally = bpf_map_lookup_elem(&mapping_pairs, &key), none = {};

	if (!tally) {
		bpf_map_update_elem(&mapping_pairs, &key, &none, BPF_NOEXIST);
		tally = bpf_map_lookup_elem(&mapping_pairs, &key);
	}
	if (!tally) {
		lose(usage_of(key.tgid), DROP_TALLY_FULL, 0);
		return;
	}

	__sync_fetch_and_add(&tally->objects, 1);
	__sync_fetch_and_add(&tally->bytes, whole_pages(event->length));
}

/* At the entry of munmap: at the exit, another thread may have been given the address. A call that
 * fails for its arguments is ignored. Others fail hardly ever; the maps of the process show it. */
SEC("tracepoint")
int enter_munmap(struct syscall_entry *ctx)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf());
	__u64 start = SYSCALL_ARG1(regs), length = SYSCALL_ARG2(regs);
	__u32 tgid = current_tgid();
	struct thread *thread;
	struct event *event;
	bool is_exact = false;

	if (!is_traced(tgid) || !length || start & (page_size - 1) || length >> ADDRESS_BITS)
		return 0;
	thread = current_thread();
	if (!thread)
		return 0;

	if (take_recent(&thread->mapping, tgid, start)) {
		event = &thread->mapping.event;
		is_exact = whole_pages(event->length) == whole_pages(length);
		if (is_exact && thread->mapping.cuts == mapping_cuts) {
			count_pair(event);
			charge(thread, costs.mapping);
			count(COUNT_MAPPING_CALLS);
			return 0;
		}
		send_mapping_event(event);
	}

	event = begin_event(thread, EVENT_MUNMAP, tgid);
	event->start = start;
	event->length = length;
	if (is_exact)
		send_mapping_event(event);
	else
		send_cut(event);
	return 0;
}
