/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Per-thread state: the calls that a thread is in, and its place between two samples. */
#pragma once

#include "sample.h"
#include "share.h"

/* Allocator call that a thread is in. */
struct call {
	__u64 sp;   /* stack pointer at the entry; 0: the thread is in no call that is followed */
	__u64 size; /* bytes requested; ~0: the product overflowed */
	union {
		__u64 slot;     /* posix_memalign: address of the result */
		__u64 max_size; /* xallocx: size + extra, bytes */
	};
	__u64 stack;    /* stack ID; 0: none */
	__u32 interval; /* mean bytes; 0: not sampled */
	enum call_form form;
	enum probe_cookie cookie;
	enum allocation_kind kind;
	__u32 epoch;  /* at the entry */
	__u32 nested; /* calls since that count as parts of this one */
	bool old_was_live;
	struct address old_address; /* realloc: the old object, and its live-map entry if any */
	struct allocation old;
};

/* Tensor for which alloc_cpu has been called and has not called the allocator yet. */
struct tensor {
	__u64 sp;       /* stack pointer at the entry of alloc_cpu; 0: no such tensor */
	__u64 size;     /* bytes requested */
	__u64 stack;    /* stack ID; 0: none */
	__u32 interval; /* mean bytes; 0: not sampled */
	__u32 epoch;    /* tensor_epoch at the entry */
};

/* Time that was taken from a thread. */
struct charge {
	__u64 ns;
	__u32 window; /* in which it was taken */
};

struct thread {
	struct charge charge; /* by probes */
	struct charge wait;   /* for the lock of the address space, while allocscope had it */
	struct charge shim;   /* by our preloaded library; ps */
	__u32 skipped_faults; /* page faults that the next sampled one represents, too */
	struct sampler sampler, tensor_sampler, block_sampler;
	struct tensor tensor;
	struct call call;
	__u64 malloc_sp; /* stack pointer, return address and code of the last malloc whose return
			  * is not probed */
	__u64 malloc_return;
	__u64 malloc_code;
	struct recent_mapping mapping; /* scratch of source mapping */
	__u64 file_start;              /* of the last mapping of a file among the recent ones */
	__u64 brk_time;                /* ns, CLOCK_MONOTONIC, of the last EVENT_BRK */
};

/* Scratch space is per task: a uprobe program can be preempted and migrate between two helper
 * calls. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

volatile struct probe_costs costs = {};

/* A program is slowed down by the probes in one thread, not by their sum over all threads. User
 * space increments charge_window, and then reads the charge of the thread that had the most in the
 * window before: windows take turns in `busiest`. A store of two threads at a time may lose the
 * larger one, until the next event of that thread. */
volatile __u32 charge_window = 0;
volatile __u64 busiest[2] = {};      /* ns */
volatile __u64 longest_wait[2] = {}; /* ns; the same for the time that threads waited */
volatile __u64 busiest_shim[2] = {}; /* ps; the same for the work of our preloaded library */

#define BUSIEST_STEP 1024 /* ns; not every event need write a word that all CPUs share */

static __always_inline void add_charge(struct charge *charge, volatile __u64 most[2], __u64 ns)
{
	__u32 window = charge_window;

	if (charge->window != window) {
		charge->window = window;
		charge->ns = 0;
	}

	charge->ns += ns;
	if (charge->ns >= most[window & 1] + BUSIEST_STEP)
		most[window & 1] = charge->ns;
}

/* Adds time that probes have taken from a thread. */
static __always_inline void charge(struct thread *thread, __u64 ns)
{
	add_charge(&thread->charge, busiest, ns);
}

/* Returns the state of the current thread, allocated on first use; NULL: out of memory. Before
 * Linux 6.2 the kernel refuses the state also where a task that is inside bpf_task_storage_get()
 * has been preempted on the CPU (bpf_task_storage_busy, kernel/bpf/bpf_task_storage.c). */
static __always_inline struct thread *current_thread(void)
{
	struct thread *thread = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL,
						     BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!thread)
		lose_current(DROP_THREAD_STATE);
	return thread;
}

/* Adds time that probes have taken from the current thread. */
static __always_inline void charge_current(__u64 ns)
{
	struct thread *thread = current_thread();

	if (thread)
		charge(thread, ns);
}
