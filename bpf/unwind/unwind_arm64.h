/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Unwinding on arm64. */
#pragma once

#include "unwind/walk.h"

#define SIGNAL_REGISTERS 544 /* x29 in a signal frame (struct rt_sigframe, arch/arm64/kernel/signal.c) */

static __always_inline int step_signal(struct walk *walk)
{
	struct {
		__u64 fp, lr, sp, pc;
	} saved;

	if (!read_user(&saved, sizeof(saved), walk->sp + SIGNAL_REGISTERS))
		return stop(walk, END_STACK_MEMORY);
	walk->pc = saved.pc;
	walk->sp = saved.sp;
	walk->fp = saved.fp;
	walk->link = saved.lr;
	walk->kind = WORD_INTERRUPTED;
	return 0;
}

static __always_inline int step_to(struct walk *walk, __u64 cfa)
{
	enum fp_rule fp = walk->rule.fp & 15;

	walk->slot = cfa + walk->rule.fp_offset;
	if (fp == FP_SAME) {
		walk->pc = walk->link;
		walk->slot = 0;
	} else if (!read_stack(walk, walk->slot, &walk->pc, NULL)) {
		return stop(walk, END_STACK_MEMORY);
	}
	if (fp == FP_FRAME && !read_stack(walk, walk->slot - 8, &walk->fp, NULL))
		return stop(walk, END_STACK_MEMORY);
	walk->pc &= (1ULL << 48) - 1; /* without the signature of pointer authentication */
	return 0;
}

/* Goes to the caller of a function at whose entry the thread stands. */
static __always_inline int step_entry(struct walk *walk)
{
	walk->slot = 0;
	walk->pc = walk->link;
	walk->link = 0;
	return 0;
}

/* Takes the registers of a thread over. */
static __always_inline void stand_at(struct walk *walk, struct pt_regs *regs)
{
	walk->pc = regs->pc;
	walk->sp = regs->sp;
	walk->fp = REGS_FP(regs);
	walk->link = REGS_LR(regs);
}
