/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* A call of an allocator function: whether it is nested in another, its arguments and its result.
 * This file alone depends on the functions' signatures. */
#pragma once

#include "regs.h"
#include "thread.h"

/* Results of the entry handler of a uprobe session. */
#define FOLLOW_RETURN 0 /* run the return handler */
#define SKIP_RETURN 1   /* save its cost */

/* Stack that an allocator uses at most between its entry and a nested call, in bytes. */
#define NESTED_STACK_BYTES (64 << 10)
/* Calls of probed functions that an allocator function makes at most. More of them, all below its
 * frame, are not its own: its return has been missed. */
#define MAX_NESTED_CALLS 8

/* Returns whether the probes of the thread's last call are still the present ones. */
static __always_inline bool is_of_epoch(const struct call *call)
{
	return call->epoch == (call->kind == KIND_TENSOR ? tensor_epoch : epoch);
}

/* Returns whether the thread's last call has not returned yet. */
static __always_inline bool is_under_way(const struct call *call)
{
	return call->sp && is_of_epoch(call);
}

/* Gives up a call whose return will not be seen. */
static __always_inline void abandon_call(struct call *call)
{
	if (call->cookie & COOKIE_THROWS)
		count(COUNT_FAILED);
	else
		lose_current(DROP_MISSED_RETURN);
	if (call->interval)
		count(COUNT_ENDED);
	call->sp = 0;
}

/* Returns whether a call at `sp` is made by `call`. Below its stack pointer, the allocator calls
 * itself. At the same stack pointer, another function has been reached by a tail call. Anywhere
 * else, the return of `call` has been missed. */
static __always_inline bool is_nested(const struct call *call, __u64 sp, enum probe_cookie cookie)
{
	if (sp == call->sp)
		return cookie != call->cookie;
	return sp < call->sp && call->sp - sp < NESTED_STACK_BYTES;
}

/* Returns whether a call that begins is part of the call that the thread is in; otherwise gives the
 * latter up. A function that may throw calls no probed function before it has failed. */
static __always_inline bool is_inner_call(struct call *call, __u64 sp, enum probe_cookie cookie)
{
	if (!is_under_way(call))
		return false;
	if (!(call->cookie & COOKIE_THROWS) && is_nested(call, sp, cookie) &&
	    call->nested++ < MAX_NESTED_CALLS)
		return true;

	abandon_call(call);
	return false;
}

/* Returns n * size; ~0 on overflow. (clang turns n > ~0 / size into a 128-bit product, which BPF
 * lacks.) */
static __always_inline __u64 product(__u64 n, __u64 size)
{
	__u64 large = n > size ? n : size, small = n > size ? size : n;

	if (small >> 32 || ((large >> 32) * small + (((large & 0xffffffff) * small) >> 32)) >> 32)
		return ~0ULL;
	return n * size;
}

/* Reads the arguments of a call that begins: its size, and the object that it frees or resizes. */
static __always_inline void read_arguments(struct call *call, struct pt_regs *regs,
					   __u64 *old_pointer)
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
		call->max_size = call->size + REGS_ARG3(regs);
		break;
	case CALL_POSIX_MEMALIGN:
		call->slot = REGS_ARG1(regs);
		call->size = REGS_ARG3(regs);
		break;
	case CALL_MEMALIGN:
		call->size = REGS_ARG2(regs);
		break;
	default: /* requests no host memory */
		break;
	}
}

/* Returns the address that posix_memalign stored; 0: it failed. */
static __always_inline __u64 read_out_pointer(const struct call *call, __u64 error)
{
	__u64 address = 0;

	if ((__u32)error)
		return 0;
	if (bpf_probe_read_user(&address, sizeof(address), (void *)call->slot)) {
		lose_current(DROP_OUT_POINTER);
		return 0;
	}
	return address;
}

/* Returns the address that a returning call has allocated; 0: it failed. xallocx may return more
 * than `size`, of which `max_size` at most counts as requested. */
static __always_inline __u64 allocated_address(struct call *call, __u64 result)
{
	switch (call->form) {
	case CALL_POSIX_MEMALIGN:
		return read_out_pointer(call, result);
	case CALL_XALLOCX:
		if (result < call->size)
			return 0;
		call->size = result < call->max_size ? result : call->max_size;
		return call->old_address.address;
	default:
		return result;
	}
}

/* Returns whether a failed call has left its old object unchanged. */
static __always_inline bool keeps_old_object(const struct call *call)
{
	return call->size && call->form != CALL_REALLOCF && call->form != CALL_HEAP_REALLOCF;
}
