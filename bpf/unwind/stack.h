/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* capture_stack(): the one way to a stack ID. */
#pragma once

#include "unwind/unwind.h"

/* Finds the rule for walk->pc, or the call before it, where it is a return address. */
static __always_inline bool locate(struct walk *walk)
{
	bool is_return = walk->kind != WORD_INTERRUPTED && walk->steps;
	__u64 original;

	walk->address = walk->pc - is_return;
	if (find_rule(walk))
		return true;
	original = walk->slot ? replaced_return(walk->slot) : 0;
	if (original) {
		walk->pc = original;
		walk->address = original - is_return;
		if (find_rule(walk))
			return true;
	}
	ask(walk, NOTICE_UNMAPPED, walk->stack.tgid, walk->address);
	return false;
}

/* Goes to the caller without a rule where none is needed, so that an allocator may do without unwind information. */
static __always_inline int leave_entry(struct walk *walk)
{
	walk->steps++;
	return push(walk, word_of(walk->kind, walk->pc)) ? step_entry(walk) : 1;
}

/* Tells the frame reached and goes on to its caller. 1: the stack ends. */
__attribute__((noinline)) int step(struct walk *walk)
{
	int stopped;

	if (!walk)
		return 1;
	if (walk->at_entry && !walk->steps)
		return leave_entry(walk);
	if (!locate(walk))
		return stop(walk, END_UNMAPPED);
	if (walk->rule.kind & RULE_IN_LOOP) {
		walk->rule.kind &= ~RULE_IN_LOOP;
		walk_python(walk);
	}
	if (!push(walk, word_of(walk->kind, walk->pc)))
		return 1;
	stopped = apply_rule(walk);
	walk->steps++;
	if (!stopped && !walk->pc)
		return stop(walk, END_WHOLE);
	return stopped;
}

/* Walks the stack of the current thread, whose registers are in the walk, and gives its ID. */
__attribute__((noinline)) int run_walk(struct walk *walk)
{
	if (!walk)
		return 0;
	walk->hash = mix(0, walk->stack.tgid);
	walk->generation = read_generation(walk->stack.tgid);
	walk->stack.length = 0;
	walk->stack.end = END_LIMIT;
	walk->stack.python = PYTHON_FINE;
	walk->slot = 0;
	walk->kind = WORD_NATIVE;
	walk->steps = 0;
	walk->mapping.end = 0;
	walk->mapping.start = 0;
	walk->has_python = false;
	walk->thread = 0;
	walk->now = bpf_ktime_get_ns() >> 10;
	walk->window_start = 0;
	walk->frame = 0;
	for (int i = 0; i < MAX_WORDS; i++)
		if (step(walk))
			break;
	if (walk->stack.end == END_WHOLE)
		finish_python(walk);
	walk->hash = mix(walk->hash, walk->stack.end);
	walk->stack.id = walk->hash ? walk->hash : 1;
	return 0;
}

static __always_inline void add_one(void *map, __u32 index)
{
	__u64 *counter = bpf_map_lookup_elem(map, &index);

	if (counter)
		__sync_fetch_and_add(counter, 1);
}

/* Sends a stack to user space unless that has been done. One that could not be sent will be the next time it is met. It
 * is `seen` only afterwards, when every thread may count on it: rather than wait for another, a thread sends it too. */
static __always_inline void announce_stack(struct walk *walk)
{
	__u64 id = walk->stack.id;
	__u32 length;

	if (bpf_map_lookup_elem(&seen, &id))
		return;
	if (walk->has_python)
		announce_codes(walk);
	walk->stack.kind = NOTICE_STACK;
	length = *(volatile __u32 *)&walk->stack.length; /* once held on the stack it has no bounds for Linux 5.15 */
	if (length > MAX_WORDS)
		return;
	if (bpf_ringbuf_output(&notices, &walk->stack, __builtin_offsetof(struct stack, words) + 8 * length,
			       NOTICE_URGENT))
		count(DROP_NOTICES);
	else /* with no room left there it is sent again, the next time */
		bpf_map_update_elem(&seen, &id, &walk->stack.tgid, BPF_ANY);
}

/* Walks the stack of the current thread, which stands at regs, and announces it if it is new. NULL: it could not. The
 * time that it takes is added to a counter. */
static __always_inline struct walk *walk_stack(struct pt_regs *regs, __u32 tgid, bool at_entry, enum counter price)
{
	struct walk *walk =
		bpf_task_storage_get(&walks, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__u64 began;

	if (!walk) {
		count(DROP_THREAD_STATE);
		return NULL;
	}
	began = bpf_ktime_get_ns();
	walk->stack.tgid = tgid;
	walk->at_entry = at_entry;
	stand_at(walk, regs);
	run_walk(walk);
	announce_stack(walk);
	count_many(price, bpf_ktime_get_ns() - began);
	return walk;
}

/* Stack ID of the current thread, which stands at regs; 0: there is none. How it ends is counted. */
static __always_inline __u64 capture_stack(struct pt_regs *regs, __u32 tgid, bool at_entry, enum counter price)
{
	struct walk *walk = walk_stack(regs, tgid, at_entry, price);

	if (!walk)
		return 0;
	add_one(&stack_ends, walk->stack.end);
	add_one(&python_errors, walk->stack.python);
	return walk->stack.id;
}
