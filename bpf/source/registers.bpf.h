/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The user registers of the threads of a process, as the kernel has saved them at their last entry
 * into it. */
#pragma once

#include "regs.h"
#include "task.h"

struct seq_file;

struct bpf_iter_meta { /* include/linux/bpf.h */
	struct seq_file *seq;
} KERNEL_STRUCT;

struct bpf_iter__task { /* kernel/bpf/task_iter.c */
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

/* The registers of one thread: all of struct pt_regs. */
struct thread_registers {
	__u32 tid, padding;
	__u64 words[sizeof(struct pt_regs) / 8];
};

const volatile __u32 registers_tgid = 0; /* of the process */

/* Reads the registers of a thread. Returns 0, or an error. It is not inline, so that Go sees its
 * types. */
static __noinline long read_thread(struct thread_registers *to, struct task_struct *task)
{
	to->tid = task->pid;
	return bpf_probe_read_kernel(to->words, sizeof(to->words), (void *)bpf_task_pt_regs(task));
}

SEC("iter/task")
int read_registers(struct bpf_iter__task *ctx)
{
	struct thread_registers found = {};
	struct task_struct *task = ctx->task;

	if (task && task->tgid == registers_tgid && !read_thread(&found, task))
		bpf_seq_write(ctx->meta->seq, &found, sizeof(found));
	return 0;
}
