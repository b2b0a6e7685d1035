/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Training steps: calls of one function, such as the one that runs a backward pass. */
#pragma once

#include "source/process.bpf.h"

/* Calls so far. User space adds the entry of a process before it attaches the probe, so that no
 * call is lost to a full map. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32); /* tgid */
	__type(value, struct step_count);
} steps SEC(".maps");

/* Minimum time between two events, in ns: the function may be called a million times a second. */
const volatile __u64 step_event_period = 1000000;

/* Does without keep_task_stack(). The program's stack is too small for the kernel to use a private
 * one (64 bytes, BPF_PRIV_STACK_MIN_SIZE). Its attach type differs from the type of source heap's
 * programs, with which it could not share a program array. */
SEC("uprobe")
int on_step(struct pt_regs *ctx)
{
	__u32 tgid = current_tgid();
	struct step_count *steps_so_far;
	__u64 now, calls;

	if (!is_traced(tgid))
		return 0;

	steps_so_far = bpf_map_lookup_elem(&steps, &tgid);
	if (!steps_so_far)
		return 0;

	calls = __sync_fetch_and_add(&steps_so_far->calls, 1) + 1;
	now = bpf_ktime_get_ns();
	if (now - steps_so_far->reported < step_event_period)
		return 0;

	steps_so_far->reported = now;
	send_event(EVENT_STEP, tgid, calls, lazy_wakeup());
	return 0;
}
