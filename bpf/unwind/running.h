/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Whether a function is still running on the stack of the current thread. Its return address may
 * stay on the stack for long after it has returned: only a walk shows that it will be used. */
#pragma once

#include "unwind/stack.h"

/* Frames between a system call and the function that it is made for, at most. */
#define RUNNING_FRAMES 32

enum running {
	RUNNING_NO,
	RUNNING_YES,
	RUNNING_UNKNOWN, /* code without unwind information lies between */
};

/* Returns whether a frame is left by a guess, or not at all. */
static __always_inline bool is_without_rule(enum rule_kind kind)
{
	return kind == RULE_NOT_READY || kind == RULE_GUESS || kind == RULE_NONE ||
	       kind == RULE_UNSUPPORTED;
}

/* Steps to the caller of a frame. Returns RUNNING_YES if there is one, RUNNING_NO if a signal has
 * interrupted it: the handler is no part of the function. */
__attribute__((noinline)) int step_running(struct walk *walk)
{
	if (!walk || !locate_code(walk))
		return RUNNING_UNKNOWN;

	walk->rule.kind &= ~RULE_FLAGS;
	if (is_without_rule(walk->rule.kind))
		return RUNNING_UNKNOWN;
	if (walk->rule.kind == RULE_SIGNAL)
		return RUNNING_NO;

	if (apply_rule(walk))
		return RUNNING_UNKNOWN;
	walk->steps++;
	return RUNNING_YES;
}

/* Returns whether the function is running that was entered with a stack pointer above the one in
 * the walk. Then the walk has its return address, and an address of its code. */
__attribute__((noinline)) int find_running(struct walk *walk, __u64 entry_sp)
{
	__u64 caller_sp = entry_sp + RETURN_SLOT;

	if (!walk)
		return RUNNING_UNKNOWN;

	begin_walk(walk);
	for (int i = 0; i < RUNNING_FRAMES; i++) {
		int running = step_running(walk);

		if (running != RUNNING_YES)
			return running;
		if (walk->sp >= caller_sp)
			return walk->sp == caller_sp ? RUNNING_YES : RUNNING_NO;
	}
	return RUNNING_NO;
}
