/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What programs need because of the way in which they are attached. */
#pragma once

#include "maps.h"

/* Since 6.13 the kernel gives programs that use much stack one for each CPU, also those of uprobes, which can be
 * preempted by each other and then overwrite it. It does not where it finds a tail call, even one in code that the
 * verifier sees is dead and removes. */
struct no_programs {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
};

/* Programs that are attached in different ways cannot share one. */
struct no_programs no_programs SEC(".maps"), no_sessions SEC(".maps");

const volatile bool never = false;

static __always_inline void keep_task_stack(void *ctx, void *programs)
{
	if (never)
		bpf_tail_call(ctx, programs, 0);
}
