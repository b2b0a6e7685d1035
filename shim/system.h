/* SPDX-License-Identifier: Apache-2.0 */
/* System calls without a C library: they leave errno alone. Numbers are from asm/unistd.h. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
enum {
	SYS_MMAP = 9,
	SYS_MADVISE = 28,
	SYS_NANOSLEEP = 35,
	SYS_GETPID = 39,
	SYS_PRCTL = 157,
	SYS_GETRANDOM = 318,
};

static long system_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long r10 asm("r10") = d;
	register long r8 asm("r8") = e;
	register long r9 asm("r9") = f;
	long result;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		     : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
enum {
	SYS_NANOSLEEP = 101,
	SYS_PRCTL = 167,
	SYS_GETPID = 172,
	SYS_MMAP = 222,
	SYS_MADVISE = 233,
	SYS_GETRANDOM = 278,
};

static long system_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long x8 asm("x8") = number;
	register long x0 asm("x0") = a;
	register long x1 asm("x1") = b;
	register long x2 asm("x2") = c;
	register long x3 asm("x3") = d;
	register long x4 asm("x4") = e;
	register long x5 asm("x5") = f;

	asm volatile("svc 0"
		     : "+r"(x0)
		     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
		     : "memory");
	return x0;
}
#endif

struct time {
	long seconds, nanoseconds;
};

/* Returns whether a thread may sleep. A signal ends the sleep, too. */
static int sleep_1_ms(void)
{
	enum { EINTR = 4 };
	struct time time = { 0, 1000000 };
	long result = system_call(SYS_NANOSLEEP, (long)&time, 0, 0, 0, 0, 0);

	return !result || result == -EINTR;
}

static uint64_t entropy(void)
{
	uint64_t value = 0;

	enum { GRND_NONBLOCK = 1 };
	if (system_call(SYS_GETRANDOM, (long)&value, sizeof(value), GRND_NONBLOCK, 0, 0, 0) !=
	    sizeof(value))
		value = (uintptr_t)&value ^ (uint64_t)system_call(SYS_GETPID, 0, 0, 0, 0, 0, 0)
						    << 32;
	return value;
}

enum { MAP_SHARED = 1, MAP_PRIVATE = 2 };

/* Returns zeroed memory in small pages, with a name in /proc/PID/maps, or NULL. */
static void *map_memory(size_t bytes, int sharing)
{
	enum { PROT_READ_WRITE = 3, ANONYMOUS_NORESERVE = 0x4020 };
	enum { MADV_NOHUGEPAGE = 15, PR_SET_VMA = 0x53564d41, PR_SET_VMA_ANON_NAME = 0 };
	long at = system_call(SYS_MMAP, 0, bytes, PROT_READ_WRITE, sharing | ANONYMOUS_NORESERVE,
			      -1, 0);

	if (at < 0 && at > -4096)
		return NULL;
	system_call(SYS_MADVISE, at, bytes, MADV_NOHUGEPAGE, 0, 0, 0);
	system_call(SYS_PRCTL, PR_SET_VMA, PR_SET_VMA_ANON_NAME, at, bytes,
		    (long)"allocscope samples", 0);
	return (void *)at;
}

/* Makes pages zero again in forked children. */
static void wipe_on_fork(void *at, size_t bytes)
{
	enum { MADV_WIPEONFORK = 18 };

	system_call(SYS_MADVISE, (long)at, bytes, MADV_WIPEONFORK, 0, 0, 0);
}
