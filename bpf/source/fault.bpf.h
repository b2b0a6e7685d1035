/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `fault`: one in N page faults of user memory, each with its page and its stack. The perf
 * software event PERF_COUNT_SW_PAGE_FAULTS fires when the kernel begins to handle a fault on a user
 * address, in user mode or in a system call such as read(2). Pages that become resident without a
 * fault (mlock, MAP_POPULATE, pinned memory) are no events. A fault is one event, even if it maps
 * several pages: a huge page, or pages of a file. */
#pragma once

#include "live.h"

#include "unwind/site.h"

struct bpf_perf_event_data { /* include/uapi/linux/bpf_perf_event.h */
	bpf_user_pt_regs_t regs;
	__u64 sample_period;
	__u64 addr;
};

/* Latest sampled fault of each page. User space sets the size before it loads the map. It is
 * preallocated, as are all hash maps that a walk uses: Linux 5.15 allows perf_event programs no
 * others. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address); /* of the page */
	__type(value, struct fault);
} faults SEC(".maps");

/* Returns whether the faulting address is readable. As the fault has not been handled yet, it is
 * then a write to a present page, or another thread has faulted the page in. */
static __always_inline bool is_present(__u64 address)
{
	__u8 byte;

	return bpf_probe_read_user(&byte, sizeof(byte), (void *)address) == 0;
}

/* Beyond the budget of walks faults are skipped, and the next one of the thread represents them.
 *
 * The task's walk is never in use by a program that this one interrupts: programs read user memory
 * with page faults disabled, which fire no event. keep_task_stack() is not needed: the kernel runs
 * this program with preemption disabled and once at a time per CPU, so a private stack is safe. How
 * these stacks end is not counted: most are never reported, and a reported one shows its end. */
SEC("perf_event")
int on_fault(struct bpf_perf_event_data *ctx)
{
	__u32 tgid = current_tgid();
	struct fault fault = {};
	struct thread *thread;
	struct address page;
	struct walk *walk;
	__u64 now;

	if (!is_traced(tgid))
		return 0;

	thread = current_thread();
	if (!thread)
		return 0;
	charge(thread, ctx->sample_period * costs.fault);

	now = bpf_ktime_get_ns();
	if (!is_walk_allowed(now)) {
		thread->skipped_faults += ctx->sample_period;
		return 0;
	}

	count(COUNT_FAULTS);
	page = make_address(tgid, ctx->addr & ~(page_size - 1));
	fault.period = ctx->sample_period + thread->skipped_faults;
	fault.copied = is_present(ctx->addr);
	fault.time = now;
	thread->skipped_faults = 0;

	walk = walk_stack((struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf()), tgid,
			  false, COUNT_KERNEL_WALK_NS);
	fault.stack = walk ? walk->stack.id : 0;
	use_budget(now, bpf_ktime_get_ns() - now);

	if (bpf_map_update_elem(&faults, &page, &fault, BPF_ANY))
		lose(usage_of(tgid), DROP_FAULTS_FULL, 0);
	return 0; /* no record in the perf ring buffer */
}
