/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Unwinding on arm64. */
#pragma once

#include "unwind/walk.h"

/* Offset of x29 in struct rt_sigframe, arch/arm64/kernel/signal.c. */
#define SIGNAL_REGISTERS 544

/* Steps to the frame that a signal interrupted. */
static __always_inline int step_signal(struct walk *walk)
{
	struct {
		__u64 fp, lr, sp, pc;
	} saved;

	if (!read_user(&saved, sizeof(saved), walk->sp + SIGNAL_REGISTERS))
		return end_walk(walk, END_STACK_MEMORY);

	walk->pc = saved.pc;
	walk->sp = saved.sp;
	walk->fp = saved.fp;
	walk->link = saved.lr;
	walk->kind = WORD_INTERRUPTED;
	return 0;
}

/* Reads the return address and the caller's frame pointer, by walk->rule. */
static __always_inline int restore_caller(struct walk *walk, __u64 cfa)
{
	enum fp_rule fp = walk->rule.fp & 15;

	walk->slot = cfa + walk->rule.fp_offset;
	if (fp == FP_SAME) {
		walk->pc = walk->link;
		walk->slot = cfa - 1; /* in no frame above */
	} else if (!read_stack(walk, walk->slot, &walk->pc, NULL)) {
		return end_walk(walk, END_STACK_MEMORY);
	}
	if (fp == FP_FRAME && !read_stack(walk, walk->slot - 8, &walk->fp, NULL))
		return end_walk(walk, END_STACK_MEMORY);
	walk->pc = strip_code(walk->pc);
	return 0;
}

/* Steps from the entry of a function to its caller. */
static __always_inline int step_entry(struct walk *walk)
{
	walk->slot = walk->sp - 1; /* in no frame above */
	walk->pc = walk->link;
	walk->link = 0;
	return 0;
}

/* Starts the walk at the registers of the thread. */
static __always_inline void load_registers(struct walk *walk, struct pt_regs *regs)
{
	walk->pc = regs->pc;
	walk->sp = regs->sp;
	walk->fp = REGS_FP(regs);
	walk->link = REGS_LR(regs);
}
