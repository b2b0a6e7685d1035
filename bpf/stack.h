/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* capture_stack(): the one way to a stack ID. */
#pragma once

#include "maps.h"
#include "regs.h"

#define STACK_SPAN (64ULL << 20) /* no thread's stack reaches further, bytes */

static __always_inline __u64 mix(__u64 hash, __u64 value)
{
	hash = (hash ^ value) * 0x9E3779B97F4A7C15ULL;
	return hash ^ (hash >> 29);
}

/* Walks the frame pointers. frames[0] is where the thread stands, frames[1] the return address of that function, which
 * has no frame yet; user space checks it, as it does the rest, against the executable mappings. */
static __always_inline __u64 walk_frame_pointers(struct stack *stack, struct pt_regs *regs)
{
	__u64 lowest = REGS_SP(regs), fp = REGS_FP(regs), highest = lowest + STACK_SPAN;
	__u64 hash = mix(stack->tgid, REGS_IP(regs));
	__u32 length = 2;

	stack->frames[0] = REGS_IP(regs);
	stack->frames[1] = return_address(regs);
	hash = mix(hash, stack->frames[1]);
	while (length < MAX_FRAMES) {
		struct {
			__u64 fp, pc;
		} frame;

		if (fp < lowest || fp > highest || fp & 7)
			break;
		if (bpf_probe_read_user(&frame, sizeof(frame), (void *)fp) || !frame.pc)
			break;
		stack->frames[length++] = frame.pc;
		hash = mix(hash, frame.pc);
		lowest = fp + sizeof(frame);
		fp = frame.fp;
	}
	stack->length = length;
	return hash ? hash : 1;
}

static __always_inline void announce_stack(__u32 tgid, __u64 id)
{
	struct notice *notice = bpf_ringbuf_reserve(&notices, sizeof(*notice), 0);

	if (!notice) {
		count(DROP_NOTICES);
		return;
	}
	__builtin_memset(notice, 0, sizeof(*notice));
	notice->kind = NOTICE_STACK;
	notice->tgid = tgid;
	notice->time = bpf_ktime_get_ns();
	notice->stack = id;
	bpf_ringbuf_submit(notice, 0);
}

/* Stack ID of the current thread, which stands at regs. A stack that is new is kept and announced. 0: it could not be
 * kept. */
static __always_inline __u64 capture_stack(struct pt_regs *regs, __u32 tgid)
{
	struct stack *stack =
		bpf_task_storage_get(&stack_scratch, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 id;
	long err;

	if (!stack) {
		count(DROP_THREAD_STATE);
		return 0;
	}
	stack->tgid = tgid;
	id = walk_frame_pointers(stack, regs);
	if (bpf_map_lookup_elem(&stacks, &id))
		return id;
	err = bpf_map_update_elem(&stacks, &id, stack, BPF_NOEXIST);
	if (err == -EEXIST)
		return id;
	if (err) {
		count_refusal(err, DROP_STACKS_FULL);
		return 0;
	}
	announce_stack(tgid, id);
	return id;
}
