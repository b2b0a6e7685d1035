/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `fault`: page faults of user memory, one in so many, each with its page and its stack. By the software event
 * PERF_COUNT_SW_PAGE_FAULTS the program runs where the kernel begins to handle a fault: of user mode, or its own on a
 * user address, as in read(2) into fresh memory. Pages that come without a fault (mlock, MAP_POPULATE, pinned memory)
 * are no events, and a fault is one event whatever it maps: a huge page, or several pages of a file. */
#pragma once

#include "live.h"
#include "unwind/stack.h"

struct bpf_perf_event_data { /* include/uapi/linux/bpf_perf_event.h */
	struct pt_regs regs;
	__u64 sample_period;
	__u64 addr;
};

const volatile __u64 page_size = 4096; /* bytes */

/* The newest sampled fault of each page. Its size is set before loading. It has its memory from the start, as have all
 * hash maps that a walk needs: 5.15 lets programs of this type use no others. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address); /* of the page */
	__type(value, struct fault);
} faults SEC(".maps");

/* Whether something can be read where the fault is. The fault has not been handled yet; so it is a write to a page that
 * is there, or another thread has been faster. */
static __always_inline bool is_present(__u64 address)
{
	__u8 byte;

	return bpf_probe_read_user(&byte, sizeof(byte), (void *)address) == 0;
}

/* The walk is the task's own, and never in use by another program that this one interrupts: while a program reads user
 * memory, faults are disabled, and those are no events of this kind. Without keep_task_stack: the kernel runs this one
 * with preemption disabled, and once at a time on a CPU, so that a stack for each CPU is its own, too. How the stacks
 * end is not counted: most are of pages whose first toucher is of no use, and the others show it. */
SEC("perf_event")
int on_fault(struct bpf_perf_event_data *ctx)
{
	__u32 tgid = current_tgid();
	struct fault fault = {};
	struct address page;
	struct walk *walk;

	if (!is_traced(tgid))
		return 0;
	count(COUNT_FAULTS);
	page = make_address(tgid, ctx->addr & ~(page_size - 1));
	fault.period = ctx->sample_period;
	fault.copied = is_present(ctx->addr);
	fault.time = bpf_ktime_get_ns();
	walk = walk_stack((struct pt_regs *)bpf_task_pt_regs(bpf_get_current_task_btf()), tgid, false,
			  COUNT_KERNEL_WALK_NS);
	fault.stack = walk ? walk->stack.id : 0;
	if (bpf_map_update_elem(&faults, &page, &fault, BPF_ANY))
		count(DROP_FAULTS_FULL);
	return 0; /* no record for a reader of the event */
}
