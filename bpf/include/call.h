/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A call of an allocator function: whether another one makes it, what it asks for, and what it gives. The only file
 * that knows the signatures. */
#pragma once

#include "maps.h"
#include "regs.h"

#define FOLLOW_RETURN 0 /* what the entry of a uprobe session answers: run the return probe, */
#define SKIP_RETURN 1   /* or save its price */

#define NESTED_SPAN (64 << 10) /* bytes of stack within which a call made by the allocator itself lies */

/* Whether the return of the thread's last call is still to come. */
static __always_inline bool is_under_way(const struct call *call)
{
	return call->sp && call->epoch == (call->kind == KIND_TENSOR ? tensor_epoch : epoch);
}

/* The call that the thread was in will not return any more where that is seen. */
static __always_inline void abandon(struct call *call)
{
	count(call->cookie & COOKIE_THROWS ? COUNT_FAILED : DROP_MISSED_RETURN);
	call->sp = 0;
}

/* A thread's stack pointer below that of the call it is in: the allocator calls itself. At the same place: another
 * function reached by a tail call. Anything else means that the return was missed. */
static __always_inline bool is_nested(const struct call *call, __u64 sp, enum probe_cookie cookie)
{
	if (sp == call->sp)
		return cookie != call->cookie;
	return sp < call->sp && call->sp - sp < NESTED_SPAN;
}

/* Whether what is called now belongs to the call that the thread is in. What throws calls nothing that is probed before
 * it has failed. */
static __always_inline bool belongs(struct call *call, __u64 sp, enum probe_cookie cookie)
{
	if (!is_under_way(call))
		return false;
	if (!(call->cookie & COOKIE_THROWS) && is_nested(call, sp, cookie))
		return true;
	abandon(call);
	return false;
}

/* n * size; ~0 where that overflows. (clang makes of n > ~0 / size a 128-bit product, which BPF lacks.) */
static __always_inline __u64 product(__u64 n, __u64 size)
{
	__u64 large = n > size ? n : size, small = n > size ? size : n;

	if (small >> 32 || ((large >> 32) * small + (((large & 0xffffffff) * small) >> 32)) >> 32)
		return ~0ULL;
	return n * size;
}

/* Reads the arguments of the call that starts: its size, and what it gives away. */
static __always_inline void read_arguments(struct call *call, struct pt_regs *regs, __u64 *old_pointer)
{
	switch (call->form) {
	case CALL_MALLOC:
	case CALL_VALLOC:
		call->size = REGS_ARG1(regs);
		break;
	case CALL_CALLOC:
		call->size = product(REGS_ARG1(regs), REGS_ARG2(regs));
		break;
	case CALL_HEAP_CALLOC:
		call->size = product(REGS_ARG2(regs), REGS_ARG3(regs));
		break;
	case CALL_REALLOC:
	case CALL_REALLOCF:
		*old_pointer = REGS_ARG1(regs);
		call->size = REGS_ARG2(regs);
		break;
	case CALL_HEAP_REALLOC:
	case CALL_HEAP_REALLOCF:
		*old_pointer = REGS_ARG2(regs);
		call->size = REGS_ARG3(regs);
		break;
	case CALL_REALLOCARRAY:
		*old_pointer = REGS_ARG1(regs);
		call->size = product(REGS_ARG2(regs), REGS_ARG3(regs));
		break;
	case CALL_HEAP_REALLOCARRAY:
		*old_pointer = REGS_ARG2(regs);
		call->size = product(REGS_ARG3(regs), REGS_ARG4(regs));
		break;
	case CALL_XALLOCX:
		*old_pointer = REGS_ARG1(regs);
		call->size = REGS_ARG2(regs);
		call->most = call->size + REGS_ARG3(regs);
		break;
	case CALL_POSIX_MEMALIGN:
		call->slot = REGS_ARG1(regs);
		call->size = REGS_ARG3(regs);
		break;
	case CALL_MEMALIGN:
		call->size = REGS_ARG2(regs);
		break;
	default: /* asks for nothing, or is none of an allocator of the host */
		break;
	}
}

/* Address that posix_memalign, which returns, has written; 0: it failed. */
static __always_inline __u64 written_address(const struct call *call, __u64 error)
{
	__u64 address = 0;

	if ((__u32)error)
		return 0;
	if (bpf_probe_read_user(&address, sizeof(address), (void *)call->slot)) {
		count(DROP_OUT_POINTER);
		return 0;
	}
	return address;
}

/* Address that the call which returns has allocated; 0: it failed. xallocx gives more than `size` where it can, and of
 * what it gives, no more was asked for than `most`. */
static __always_inline __u64 allocated_address(struct call *call, __u64 result)
{
	switch (call->form) {
	case CALL_POSIX_MEMALIGN:
		return written_address(call, result);
	case CALL_XALLOCX:
		if (result < call->size)
			return 0;
		call->size = result < call->most ? result : call->most;
		return call->old_address.address;
	default:
		return result;
	}
}

/* Whether a call that has failed has left its old object as it was. */
static __always_inline bool keeps_old(const struct call *call)
{
	return call->size && call->form != CALL_REALLOCF && call->form != CALL_HEAP_REALLOCF;
}
