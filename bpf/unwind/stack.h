/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* capture_stack() and walk_stack(): the ways to a stack ID. */
#pragma once

#include "thread.h"

#include "unwind/unwind.h"

/* Finds the rule for walk->pc or, where that is a return address, for the call before it. Returns
 * false if no code is known there. */
static __always_inline bool locate_code(struct walk *walk)
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

	request_mappings(walk);
	return false;
}

/* Steps from the entry of a function to its caller. That needs no rule, so an allocator may lack
 * unwind information. */
static __always_inline int leave_function_entry(struct walk *walk)
{
	walk->steps++;
	return push_frame(walk) ? step_entry(walk) : 1;
}

/* Pushes the frame reached and steps to its caller. Returns 1 if the stack ends. */
__attribute__((noinline)) int step_frame(struct walk *walk)
{
	int stopped, flags;

	if (!walk)
		return 1;
	if (walk->at_entry && !walk->steps)
		return leave_function_entry(walk);

	if (!locate_code(walk))
		return end_walk(walk, END_UNMAPPED);
	flags = walk->rule.kind & RULE_FLAGS;
	walk->rule.kind &= ~RULE_FLAGS;
	if (flags & RULE_IN_LOOP)
		walk_python(walk);

	if (!push_frame(walk))
		return 1;

	/* The function that begins a greenlet never returns: the frames above it on the stack are
	 * of another greenlet. */
	if (flags & RULE_IN_GREENLET && begins_greenlet(walk))
		return end_walk(walk, END_COMPLETE);

	stopped = apply_rule(walk);
	walk->steps++;
	if (!stopped && !walk->pc)
		return end_walk(walk, END_COMPLETE);
	return stopped;
}

/* Adds the next word of the stack to the hash. Returns 0 if there is none. */
__attribute__((noinline)) int hash_next_word(struct walk *walk)
{
	__u32 index;

	if (!walk || walk->cursor >= walk->stack.length)
		return 0;

	index = word_index(&walk->stack, walk->cursor++);
	if (index < MAX_WORDS)
		walk->hash = mix(walk->hash, walk->stack.words[index]);
	return 1;
}

/* Sets the hash to the hash of the words that a stack without its middle has, and counts these. */
static __always_inline void finish_shortened(struct walk *walk)
{
	walk->hash = mix(stack_seed, walk->stack.tgid);
	walk->cursor = 0;
	for (int i = 0; i < MAX_WORDS; i++)
		if (!hash_next_word(walk))
			break;
	count(COUNT_SHORTENED);
	count_many(COUNT_LEFT_OUT, walk->stack.left_out);
}

/* Prepares a walk from the registers in it. */
static __always_inline void begin_walk(struct walk *walk)
{
	walk->hash = mix(stack_seed, walk->stack.tgid);
	walk->generation = read_generation(walk->stack.tgid);
	walk->stack.length = 0;
	walk->stack.left_out = 0;
	walk->stack.end = END_LIMIT;
	walk->stack.python = PYTHON_OK;
	walk->slot = 0;
	walk->kind = WORD_NATIVE;
	walk->steps = 0;
	walk->mapping.end = 0;
	walk->mapping.start = 0;
	walk->has_python = false;
	walk->thread = 0;
	walk->stack_buffer_start = 0;
	walk->frame = 0;
}

/* Walks the stack of the current thread from the registers in the walk, and computes its ID. */
__attribute__((noinline)) int run_walk(struct walk *walk)
{
	if (!walk)
		return 0;

	begin_walk(walk);
	for (int i = 0; i < MAX_FRAMES; i++)
		if (step_frame(walk))
			break;
	if (walk->stack.end == END_COMPLETE)
		finish_python(walk);

	if (walk->stack.left_out)
		finish_shortened(walk);
	walk->hash = mix(walk->hash, walk->stack.end);
	walk->stack.id = walk->hash ? walk->hash : 1;
	return 0;
}

/* Increments a counter of an array. */
static __always_inline void count_in(void *map, __u32 index)
{
	__u64 *counter = bpf_map_lookup_elem(map, &index);

	if (counter)
		__sync_fetch_and_add(counter, 1);
}

/* Sends a stack to user space, unless it has been received. A stack enters `reported_stacks` once
 * it is in the ring buffer, so that every thread can rely on the entry; threads that meet a new
 * stack at the same time all send it. One that could not be sent is sent the next time it is met.
 */
static __always_inline void report_stack(struct walk *walk)
{
	struct usage *usage = usage_of(walk->stack.tgid);
	__u64 id = walk->stack.id;
	__u32 length;

	if (bpf_map_lookup_elem(&reported_stacks, &id))
		return;

	if (walk->has_python)
		report_codes(walk);

	walk->stack.kind = EVENT_STACK;
	/* Read once into a register: Linux 5.15 forgets the bounds of a spilled value. */
	length = *(volatile __u32 *)&walk->stack.length;
	if (walk->stack.left_out)
		length = MAX_WORDS; /* the ring may have a word that is not in use */
	if (length > MAX_WORDS)
		return;

	if (!may_send(usage, __builtin_offsetof(struct stack, words) + 8 * length) ||
	    bpf_ringbuf_output(&events, &walk->stack,
			       __builtin_offsetof(struct stack, words) + 8 * length,
			       urgent_wakeup())) {
		lose(usage, DROP_EVENTS, 0);
		return;
	}

	count(COUNT_NEW_STACKS);
	/* If the map, or the target's share of it, is full, the stack is sent again the next time.
	 */
	if (take_place(usage, TABLE_STACKS) &&
	    bpf_map_update_elem(&reported_stacks, &id, &walk->stack.tgid, BPF_NOEXIST))
		leave_places(usage, TABLE_STACKS, 1);
}

/* Returns the walk of the current thread, at regs; NULL: out of memory. */
static __always_inline struct walk *start_walk(struct pt_regs *regs, __u32 tgid)
{
	struct walk *walk = bpf_task_storage_get(&walks, bpf_get_current_task_btf(), NULL,
						 BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!walk) {
		lose(usage_of(tgid), DROP_THREAD_STATE, 0);
		return NULL;
	}

	walk->stack.tgid = tgid;
	load_registers(walk, regs);
	return walk;
}

/* Walks the stack of the current thread from regs and reports it if it is new. Adds the ns spent to
 * the counter `cost`. Returns NULL if out of memory. */
static __always_inline struct walk *walk_stack(struct pt_regs *regs, __u32 tgid, bool at_entry,
					       enum counter cost)
{
	__u64 start = bpf_ktime_get_ns(), ns;
	struct walk *walk = start_walk(regs, tgid);

	if (!walk)
		return NULL;
	walk->now = start >> 10;
	walk->at_entry = at_entry;

	run_walk(walk);
	report_stack(walk);

	ns = bpf_ktime_get_ns() - start;
	count_many(cost, ns);
	charge_current(ns);
	return walk;
}

/* Returns the stack ID of the current thread at regs, and counts how the stack ends; 0: none. */
static __always_inline __u64 capture_stack(struct pt_regs *regs, __u32 tgid, bool at_entry,
					   enum counter cost)
{
	struct walk *walk = walk_stack(regs, tgid, at_entry, cost);

	if (!walk)
		return 0;

	count_in(&stack_ends, walk->stack.end);
	count_in(&python_errors, walk->stack.python);
	return walk->stack.id;
}
