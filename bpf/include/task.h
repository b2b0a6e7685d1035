/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Fields of the kernel's task_struct, at offsets that the loader relocates (CO-RE). */
#pragma once

#include "types.h"

#include "bpf_helpers.h"

#define MAX_RETURN_INSTANCES 64 /* nested return probes: MAX_URETPROBE_DEPTH of the kernel */

/* glibc's struct pthread has some 2 KiB, and the structs of two threads are pages apart. */
#define MAX_PTHREAD_BYTES 4096

#define KERNEL_STRUCT __attribute__((preserve_access_index))

struct return_instance { /* include/linux/uprobes.h */
	unsigned long stack;
	unsigned long orig_ret_vaddr;
	bool chained;
	struct return_instance *next;
} KERNEL_STRUCT;

struct uprobe_task {
	struct return_instance *return_instances;
} KERNEL_STRUCT;

#if defined(__TARGET_ARCH_arm64)
struct user_thread { /* the member uw of thread_struct, arch/arm64/include/asm/processor.h */
	unsigned long tp_value;
} KERNEL_STRUCT;

struct thread_struct {
	struct user_thread uw;
} KERNEL_STRUCT;
#else
struct thread_struct { /* arch/x86/include/asm/processor.h */
	unsigned long fsbase;
} KERNEL_STRUCT;
#endif

struct kernel_long { /* atomic_long_t */
	long counter;
} KERNEL_STRUCT;

struct rw_semaphore { /* include/linux/rwsem.h; without an owner under PREEMPT_RT */
	struct kernel_long owner;
} KERNEL_STRUCT;

struct mm_struct { /* include/linux/mm_types.h */
	struct rw_semaphore mmap_lock;
} KERNEL_STRUCT;

struct task_struct { /* include/linux/sched.h */
	struct mm_struct *mm;
	struct task_struct *real_parent;
	struct thread_struct thread;
	struct uprobe_task *utask;
	struct task_struct *group_leader;
	unsigned int flags;
	unsigned int pid, tgid;
	unsigned long long start_time;   /* ns */
	unsigned long long self_exec_id; /* incremented by execve(2) */
} KERNEL_STRUCT;

#define PF_FORKNOEXEC 0x40 /* of task_struct.flags: it has executed nothing since its fork */

#define HAS_FIELD(field) __builtin_preserve_field_info(field, 2) /* BPF_FIELD_EXISTS */

#define READ_KERNEL(to, from) bpf_probe_read_kernel(&(to), sizeof(to), &(from))

/* Returns whether the current process has executed nothing since its fork. */
static __always_inline bool is_fork(void)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();

	return task->group_leader->flags & PF_FORKNOEXEC;
}

/* Returns the current thread's thread pointer. arm64: as it was when the thread was last switched
 * out. */
static __always_inline __u64 thread_pointer(void)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
#if defined(__TARGET_ARCH_arm64)
	return task->thread.uw.tp_value;
#else
	return task->thread.fsbase;
#endif
}

/* Returns whether pthread_self() of a thread is `key`, by its thread pointer. On x86-64 they are
 * one. On arm64 the thread pointer is the end of the struct pthread, whose size differs by C
 * library. Both are 0 where they are not set yet. */
static __always_inline bool is_thread(__u64 pointer, __u64 key)
{
#if defined(__TARGET_ARCH_arm64)
	return key && pointer - key <= MAX_PTHREAD_BYTES;
#else
	return key && pointer == key;
#endif
}

/* Returns whether a return address that the kernel has replaced is the one in a stack slot. On
 * x86-64 `stack` is the address of the slot. On arm64 the return address was in a register, `stack`
 * was the stack pointer, and the function has saved the register below. Inner functions come first
 * among the return instances. */
static __always_inline bool is_of_slot(__u64 stack, __u64 slot)
{
#if defined(__TARGET_ARCH_arm64)
	return stack > slot;
#else
	return stack == slot;
#endif
}

/* Returns the return address that the kernel, for a return probe, replaced in a stack slot by the
 * address of its trampoline; 0: none. */
static __always_inline __u64 replaced_return(__u64 slot)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct return_instance *instance = NULL;
	struct uprobe_task *utask = NULL;

	if (READ_KERNEL(utask, task->utask) || !utask ||
	    READ_KERNEL(instance, utask->return_instances))
		return 0;

	for (int i = 0; i < MAX_RETURN_INSTANCES && instance; i++) {
		__u64 stack = 0, address = 0;
		bool chained = false; /* another probe of that return: the trampoline again */

		READ_KERNEL(stack, instance->stack);
		READ_KERNEL(chained, instance->chained);
		if (is_of_slot(stack, slot) && !chained &&
		    !READ_KERNEL(address, instance->orig_ret_vaddr))
			return address;
		if (READ_KERNEL(instance, instance->next))
			break;
	}
	return 0;
}
