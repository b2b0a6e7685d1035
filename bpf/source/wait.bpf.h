/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The time that threads of the targets wait, without a CPU, for the lock of their address space
 * while allocscope holds it: reading a process's memory and page map takes it, and attaching
 * probes. A thread that maps memory meanwhile waits, and others behind it. */
#pragma once

#include "task.h"
#include "thread.h"

#define LCB_F_READ 2 /* of contention_begin, include/trace/events/lock.h */
#define LCB_F_WRITE 4

#define RWSEM_OWNER_FLAGS 7 /* of the owner, kernel/locking/rwsem.c */

#define MAX_GENERATIONS 3 /* a search for keepers reads in the child of a child */

/* The thread group of allocscope, as the address of its leader. */
volatile __u64 own_leader = 0;

struct lock_wait {
	__u64 lock; /* address */
	__u64 from; /* ns, CLOCK_MONOTONIC */
};

/* Threads that wait. Task storage would do but for its own lock, whose contention begins and ends,
 * too. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32); /* thread ID of the initial PID namespace */
	__type(value, struct lock_wait);
} lock_waits SEC(".maps");

/* How many there are. Any contended lock of the machine ends here, held: it costs one load. */
volatile __u64 waiting = 0;

/* Returns whether a thread is of allocscope, or of a process that it has started. The owner of a
 * lock that readers hold may be a thread that has ended: its memory may be anything. */
static __always_inline bool is_own(struct task_struct *task)
{
	for (int i = 0; i < MAX_GENERATIONS && task; i++) {
		struct task_struct *leader = NULL;

		if (READ_KERNEL(leader, task->group_leader))
			return false;
		if ((__u64)leader == own_leader)
			return true;
		if (READ_KERNEL(task, leader->real_parent))
			return false;
	}
	return false;
}

/* A thread begins to wait for a lock, after it has spun for a while. Called by allocscope itself,
 * without a lock, it learns who that is, and returns whether a lock has an owner in this kernel. */
SEC("raw_tracepoint/contention_begin")
int on_wait(__u64 *ctx)
{
	__u64 lock = ctx[0], flags = ctx[1], owner = 0;
	struct lock_wait wait = { .lock = lock };
	struct rw_semaphore *semaphore = NULL;
	struct task_struct *task;
	struct mm_struct *mm;
	__u32 tid;

	if (!lock) {
		task = (void *)bpf_get_current_task_btf();
		own_leader = (__u64)task->group_leader;
		return HAS_FIELD(semaphore->owner);
	}
	if (!HAS_FIELD(semaphore->owner) || (flags != LCB_F_READ && flags != LCB_F_WRITE))
		return 0;
	if (!is_traced(current_tgid()))
		return 0;

	task = (void *)bpf_get_current_task_btf();
	mm = task->mm;
	if (!mm)
		return 0;
	semaphore = &mm->mmap_lock;
	if ((__u64)semaphore != lock)
		return 0;

	tid = bpf_get_current_pid_tgid();
	if (!bpf_map_delete_elem(&lock_waits, &tid)) /* the end of the last wait was missed */
		__sync_fetch_and_add(&waiting, -1);
	if (READ_KERNEL(owner, semaphore->owner.counter))
		return 0;
	if (!is_own((void *)(owner & ~(__u64)RWSEM_OWNER_FLAGS)))
		return 0;

	wait.from = bpf_ktime_get_ns();
	if (!bpf_map_update_elem(&lock_waits, &tid, &wait, BPF_ANY))
		__sync_fetch_and_add(&waiting, 1);
	return 0;
}

/* A thread has the lock that it has waited for, or has been killed. */
SEC("raw_tracepoint/contention_end")
int on_wait_end(__u64 *ctx)
{
	struct lock_wait *wait;
	struct thread *thread;
	__u32 tid;
	__u64 ns;

	if (!waiting)
		return 0;
	tid = bpf_get_current_pid_tgid();
	wait = bpf_map_lookup_elem(&lock_waits, &tid);
	if (!wait || wait->lock != ctx[0])
		return 0;

	ns = bpf_ktime_get_ns() - wait->from;
	if (bpf_map_delete_elem(&lock_waits, &tid))
		return 0;
	__sync_fetch_and_add(&waiting, -1);

	thread = current_thread();
	if (thread)
		add_charge(&thread->wait, longest_wait, ns);
	return 0;
}
