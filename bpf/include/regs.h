/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* User registers of a probed thread. Of the programs but the unwinder, this file alone depends on
 * the architecture. */
#pragma once

#include "types.h"

#include "bpf_helpers.h"

#if defined(__TARGET_ARCH_x86)

struct pt_regs { /* arch/x86/include/uapi/asm/ptrace.h */
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip,
		cs, flags, sp, ss;
};

typedef struct pt_regs bpf_user_pt_regs_t; /* include/uapi/asm-generic/bpf_perf_event.h */

#define REGS_ARG1(regs) ((regs)->di)
#define REGS_ARG2(regs) ((regs)->si)
#define REGS_ARG3(regs) ((regs)->dx)
#define REGS_ARG4(regs) ((regs)->cx)
#define REGS_ARG5(regs) ((regs)->r8)
#define REGS_RESULT(regs) ((regs)->ax)
#define REGS_IP(regs) ((regs)->ip)
#define REGS_SP(regs) ((regs)->sp)
#define REGS_FP(regs) ((regs)->bp)
#define SYSCALL_ARG1(regs) ((regs)->di)
#define SYSCALL_ARG2(regs) ((regs)->si)
#define SYSCALL_ARG3(regs) ((regs)->dx)
#define SYSCALL_ARG4(regs) ((regs)->r10)
#define SYSCALL_ARG5(regs) ((regs)->r8)
/* arch/x86/entry/syscalls/syscall_64.tbl */
#define SYSCALL_MMAP 9
#define SYSCALL_BRK 12
#define SYSCALL_MREMAP 25
#define SYSCALL_MADVISE 28
/* Bytes that `ret` pops: the stack pointer at the entry of a call is this much below the one after
 * it. */
#define RETURN_SLOT 8

#elif defined(__TARGET_ARCH_arm64)

struct user_pt_regs { /* arch/arm64/include/uapi/asm/ptrace.h */
	unsigned long regs[31], sp, pc, pstate;
};

struct pt_regs { /* arch/arm64/include/asm/ptrace.h */
	unsigned long regs[31], sp, pc, pstate, orig_x0;
};

typedef struct user_pt_regs bpf_user_pt_regs_t; /* arch/arm64/include/uapi/asm/bpf_perf_event.h */

#define REGS_ARG1(r) ((r)->regs[0])
#define REGS_ARG2(r) ((r)->regs[1])
#define REGS_ARG3(r) ((r)->regs[2])
#define REGS_ARG4(r) ((r)->regs[3])
#define REGS_ARG5(r) ((r)->regs[4])
#define REGS_RESULT(r) ((r)->regs[0])
#define REGS_IP(r) ((r)->pc)
#define REGS_SP(r) ((r)->sp)
#define REGS_FP(r) ((r)->regs[29])
#define REGS_LR(r) ((r)->regs[30])
#define SYSCALL_ARG1(r) ((r)->orig_x0) /* also at the exit */
#define SYSCALL_ARG2(r) ((r)->regs[1])
#define SYSCALL_ARG3(r) ((r)->regs[2])
#define SYSCALL_ARG4(r) ((r)->regs[3])
#define SYSCALL_ARG5(r) ((r)->regs[4])
/* include/uapi/asm-generic/unistd.h */
#define SYSCALL_BRK 214
#define SYSCALL_MREMAP 216
#define SYSCALL_MMAP 222
#define SYSCALL_MADVISE 233
#define RETURN_SLOT 0

#else
#error "allocscope supports x86-64 and arm64"
#endif

#if defined(__TARGET_ARCH_arm64)

/* Frame records between a system call and the allocator function that it is made for, at most. */
#define MAX_FRAME_RECORDS 16

/* Strips the pointer authentication code of an address. */
static __always_inline __u64 strip_code(__u64 address)
{
	return address & ((1ULL << 48) - 1);
}

/* Returns the return address of the function that the thread is entering. */
static __always_inline __u64 return_address(struct pt_regs *regs)
{
	return REGS_LR(regs);
}

/* Returns the return address of a running function that was entered with this stack pointer; 0:
 * unknown. It is in the last frame record below, if all functions since keep frame records, as the
 * procedure call standard wants it, and are no more than MAX_FRAME_RECORDS. */
static __always_inline __u64 saved_return_address(struct pt_regs *regs, __u64 entry_sp)
{
	struct {
		__u64 fp, lr;
	} record = { .fp = REGS_FP(regs) };

	for (int i = 0; i < MAX_FRAME_RECORDS && record.fp < entry_sp; i++)
		if (bpf_probe_read_user(&record, sizeof(record), (void *)record.fp))
			return 0;
	return record.fp < entry_sp ? 0 : strip_code(record.lr);
}

#else

/* Returns the return address of the function that the thread is entering; 0: unreadable. */
static __always_inline __u64 return_address(struct pt_regs *regs)
{
	__u64 address = 0;

	bpf_probe_read_user(&address, sizeof(address), (void *)REGS_SP(regs));
	return address;
}

/* Returns the word in the stack slot of the return address of a function that was entered with this
 * stack pointer; 0: unreadable. */
static __always_inline __u64 saved_return_address(struct pt_regs *regs, __u64 entry_sp)
{
	__u64 address = 0;

	bpf_probe_read_user(&address, sizeof(address), (void *)entry_sp);
	return address;
}

#endif
