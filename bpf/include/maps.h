/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* State shared by all sources: maps, configuration, and what is kept per thread. */
#pragma once

#include "sample.h"

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_PROG_ARRAY 3
#define BPF_MAP_TYPE_PERCPU_ARRAY 6
#define BPF_MAP_TYPE_RINGBUF 27
#define BPF_MAP_TYPE_TASK_STORAGE 29
#define BPF_F_NO_PREALLOC 1
#define BPF_LOCAL_STORAGE_GET_F_CREATE 1
#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_RB_NO_WAKEUP 1
#define BPF_RB_FORCE_WAKEUP 2
#define BPF_RB_AVAIL_DATA 0
#define E2BIG 7
#define EEXIST 17

/* Sizes of live, tensors, seen and tallies are set before loading. The first three have their memory from the start:
 * what it cannot take is lost, and the kernel's memory for an entry at a time runs out now and then long before all
 * memory does. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, struct allocation);
} live SEC(".maps");

/* The same of source `tensor`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, struct allocation);
} tensors SEC(".maps");

/* IDs of stacks that have been announced. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32); /* tgid */
} seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct tally_key);
	__type(value, struct tally);
} tallies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32); /* tgid */
	__type(value, enum target_state);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, enum counter);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22); /* bytes */
} notices SEC(".maps");

/* Waking the reader costs more than all else about a notice. One that can wait leaves it asleep, until a quarter of the
 * ring is full: user space looks once a second. One that cannot has to insist, lest those before it keep it waiting. */
#define NOTICE_URGENT BPF_RB_FORCE_WAKEUP

static __always_inline __u64 notice_patient(void)
{
	return bpf_ringbuf_query(&notices, BPF_RB_AVAIL_DATA) > 1 << 20 ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* The allocator call a thread is in. */
struct call {
	__u64 sp;   /* stack pointer at its entry; 0: in none that is followed */
	__u64 size; /* bytes asked for; ~0: more than there are */
	union {
		__u64 slot; /* posix_memalign: where the pointer will be written */
		__u64 most; /* xallocx: bytes asked for where there is room */
	};
	__u64 stack;
	__u32 interval; /* 0: not sampled */
	enum call_form form;
	enum probe_cookie cookie;
	enum allocation_kind kind;
	__u32 epoch; /* in which it began */
	bool had_old;
	struct address old_address; /* realloc: the old pointer, and what it held where it was in the live map */
	struct allocation old;
};

/* A tensor for which alloc_cpu has been called and has not asked for memory yet. */
struct tensor {
	__u64 sp;   /* stack pointer at the entry of alloc_cpu; 0: there is none */
	__u64 size; /* bytes asked for */
	__u64 stack;
	__u32 interval; /* 0: not sampled */
	__u32 epoch;    /* tensor_epoch then */
};

struct thread {
	struct sampler sampler, tensor_sampler;
	struct tensor tensor;
	struct call call;
	__u64 malloc_sp; /* stack pointer and return address of the last malloc that is not followed to its end */
	__u64 malloc_return;
	struct notice pending; /* the mapping call a thread is in */
};

/* Scratch is kept per task: uprobe programs can be preempted and migrated between helper calls. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

/* Mean bytes between samples of sources heap and tensor; 1: every allocation; 0: none, and frees do not count either.
 * They change while tracing. */
volatile __u32 interval = 0;
volatile __u32 tensor_interval = 0;
/* Counts up whenever probes are attached anew: of a call that began before, the return has not been seen. */
volatile __u32 epoch = 0;
/* Counts up whenever probes of source tensor have been detached: what alloc_cpu asked for since has not been seen. */
volatile __u32 tensor_epoch = 0;

/* The PID namespace that user space counts in; inode 0: the initial one. */
const volatile __u64 pidns_device = 0;
const volatile __u64 pidns_inode = 0;

struct bpf_pidns_info { /* include/uapi/linux/bpf.h */
	__u32 pid;
	__u32 tgid;
};

static __always_inline void count_many(enum counter what, __u64 number)
{
	__u64 *counter = bpf_map_lookup_elem(&counters, &what);

	if (counter)
		__sync_fetch_and_add(counter, number);
}

static __always_inline void count(enum counter what)
{
	count_many(what, 1);
}

/* PID of the current process as user space sees it; 0 for one of another PID namespace. */
static __always_inline __u32 current_tgid(void)
{
	struct bpf_pidns_info ids = {};

	if (!pidns_inode)
		return bpf_get_current_pid_tgid() >> 32;
	bpf_get_ns_current_pid_tgid(pidns_device, pidns_inode, &ids, sizeof(ids));
	return ids.tgid;
}

static __always_inline bool is_traced(__u32 tgid)
{
	enum target_state *state = bpf_map_lookup_elem(&targets, &tgid);

	return state && *state == TARGET_TRACED;
}

static __always_inline struct thread *current_thread(void)
{
	struct thread *thread =
		bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!thread)
		count(DROP_THREAD_STATE);
	return thread;
}
