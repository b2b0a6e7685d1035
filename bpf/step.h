/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Steps of training: calls of one function, such as the one that runs a backward pass. */
#pragma once

#include "process.h"

/* Calls so far. User space makes the entry of a process before it attaches: no call is lost for want of room. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32); /* tgid */
	__type(value, __u64);
} steps SEC(".maps");

/* Without keep_task_stack: it takes less stack than makes the kernel give it another (64 bytes,
 * BPF_PRIV_STACK_MIN_SIZE), and attaches in another way than the programs of source heap, with which it may therefore
 * share no program array. */
SEC("uprobe")
int on_step(struct pt_regs *ctx)
{
	__u32 tgid = current_tgid();
	__u64 *calls;

	if (!is_traced(tgid))
		return 0;
	calls = bpf_map_lookup_elem(&steps, &tgid);
	if (calls)
		__sync_fetch_and_add(calls, 1);
	tell(NOTICE_STEP, tgid);
	return 0;
}
