/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Steps of training: calls of one function, such as the one that runs a backward pass. */
#pragma once

#include "source/process.bpf.h"

/* Calls so far. User space makes the entry of a process before it attaches: no call is lost for want of room. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32); /* tgid */
	__type(value, struct step_count);
} steps SEC(".maps");

/* At most one notice in so many ns: the function may be one that is called a million times a second. */
#define STEP_NOTICE_EVERY 1000000

/* Without keep_task_stack: it takes less stack than makes the kernel give it another (64 bytes,
 * BPF_PRIV_STACK_MIN_SIZE), and attaches in another way than the programs of source heap, with which it may therefore
 * share no program array. */
SEC("uprobe")
int on_step(struct pt_regs *ctx)
{
	__u32 tgid = current_tgid();
	struct step_count *so_far;
	__u64 now, calls;

	if (!is_traced(tgid))
		return 0;
	so_far = bpf_map_lookup_elem(&steps, &tgid);
	if (!so_far)
		return 0;
	calls = __sync_fetch_and_add(&so_far->calls, 1) + 1;
	now = bpf_ktime_get_ns();
	if (now - so_far->told < STEP_NOTICE_EVERY)
		return 0;
	so_far->told = now;
	tell(NOTICE_STEP, tgid, calls, notice_patient());
	return 0;
}
