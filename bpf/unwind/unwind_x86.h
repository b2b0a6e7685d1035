/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Unwinding on x86-64. */
#pragma once

#include "unwind/walk.h"

/* Offset of bp in struct rt_sigframe (arch/x86/include/asm/sigframe.h), counted from the word after
 * the return address, which has been popped. */
#define SIGNAL_REGISTERS 120

/* Steps to the frame that a signal interrupted. */
static __always_inline int step_signal(struct walk *walk)
{
	struct {
		__u64 bp, bx, dx, ax, cx, sp, ip;
	} saved;

	if (!read_user(&saved, sizeof(saved), walk->sp + SIGNAL_REGISTERS))
		return end_walk(walk, END_STACK_MEMORY);

	walk->pc = saved.ip;
	walk->sp = saved.sp;
	walk->fp = saved.bp;
	walk->kind = WORD_INTERRUPTED;
	return 0;
}

/* Reads the return address and the caller's frame pointer, by walk->rule. */
static __always_inline int restore_caller(struct walk *walk, __u64 cfa)
{
	enum fp_rule fp = walk->rule.fp & 15;
	__u64 at = walk->fp;

	walk->slot = cfa - 8;
	if (fp == FP_AT_CFA && walk->rule.fp_offset == -16) /* adjacent, as the ABI lays them out */
		return read_stack(walk, cfa - 16, &walk->fp, &walk->pc)
			       ? 0
			       : end_walk(walk, END_STACK_MEMORY);
	if (fp == FP_AT_CFA)
		at = cfa;
	if (fp != FP_SAME && !read_stack(walk, at + walk->rule.fp_offset, &walk->fp, NULL))
		return end_walk(walk, END_STACK_MEMORY);
	return read_stack(walk, walk->slot, &walk->pc, NULL) ? 0 : end_walk(walk, END_STACK_MEMORY);
}

/* Steps from the entry of a function to its caller. */
static __always_inline int step_entry(struct walk *walk)
{
	walk->slot = walk->sp;
	walk->sp += RETURN_SLOT;
	return read_stack(walk, walk->slot, &walk->pc, NULL) ? 0 : end_walk(walk, END_STACK_MEMORY);
}

/* Starts the walk at the registers of the thread. */
static __always_inline void load_registers(struct walk *walk, struct pt_regs *regs)
{
	walk->pc = regs->ip;
	walk->sp = regs->sp;
	walk->fp = regs->bp;
	walk->link = 0;
	walk->leaf[LEAF_RAX] = regs->ax;
	walk->leaf[LEAF_RDI] = regs->di;
	walk->leaf[LEAF_R8] = regs->r8;
	walk->leaf[LEAF_R9] = regs->r9;
	walk->leaf[LEAF_R11] = regs->r11;
	walk->leaf[LEAF_R13] = regs->r13;
	walk->leaf[LEAF_R15] = regs->r15;
}
