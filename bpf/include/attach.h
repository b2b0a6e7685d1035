/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Workaround for a hazard of the kernel's private stacks. */
#pragma once

#include "maps.h"

/* Since 6.13 the kernel runs programs that need much stack on a private stack per CPU
 * (bpf_enable_priv_stack() in kernel/bpf/verifier.c). That includes uprobe programs, which can
 * preempt each other and then overwrite it. A program with a tail call keeps the task's stack, even
 * where the verifier removes that call as dead code. */
struct no_programs {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
};

/* Programs with different attach types cannot share a program array. */
struct no_programs no_programs SEC(".maps"), no_sessions SEC(".maps");

const volatile bool never = false;

/* Makes the kernel run the program on the task's stack. */
static __always_inline void keep_task_stack(void *ctx, void *programs)
{
	if (never)
		bpf_tail_call(ctx, programs, 0);
}
