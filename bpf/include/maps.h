/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Maps and configuration that all sources share. */
#pragma once

#include "types.h"
#include "uapi.h"

#include "bpf_helpers.h"

/* User space sets the sizes of live, tensors, reported_stacks and tallies before it loads them. The
 * first three are preallocated: allocating an element on demand fails now and then, long before
 * the system is out of memory. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, struct allocation);
} live SEC(".maps");

/* The live map of source `tensor`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, struct allocation);
} tensors SEC(".maps");

/* IDs of stacks that user space has received. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u64);
	__type(value, __u32); /* tgid */
} reported_stacks SEC(".maps");

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
	__uint(max_entries, NUM_COUNTERS);
	__type(key, enum counter);
	__type(value, __u64);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22); /* bytes */
} events SEC(".maps");

/* EVENT_START of programs, which wait until they are read: these wake their reader at once. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16); /* bytes */
} starting SEC(".maps");

/* ns, CLOCK_MONOTONIC, when an event has woken the reader. */
volatile __u64 last_wakeup = 0;

/* Wakeup flag of an urgent event. A wakeup costs microseconds, more than all else that an event
 * costs. Once woken, the reader looks again after WAKEUP_PERIOD_MS, so that nobody need wake it
 * before. Otherwise an urgent event must force the wakeup: the kernel would leave it out after
 * events that did not wake the reader. */
static __always_inline __u64 urgent_wakeup(void)
{
	__u64 now = bpf_ktime_get_ns();

	if (now - last_wakeup < WAKEUP_PERIOD_MS * 1000000)
		return BPF_RB_NO_WAKEUP;
	last_wakeup = now;
	return BPF_RB_FORCE_WAKEUP;
}

/* Wakeup flag of an event that can wait for the reader's next turn, once a second: waking the
 * reader costs more than the rest of an event. From a quarter of the ring on, it wakes the reader.
 */
static __always_inline __u64 lazy_wakeup(void)
{
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > 1 << 20 ? BPF_RB_FORCE_WAKEUP
								       : BPF_RB_NO_WAKEUP;
}

/* Sampling intervals of sources heap and tensor, in mean bytes. 1: every allocation; 0: no
 * allocation, and frees do not count either. They change while tracing. */
volatile __u32 interval = 0;
volatile __u32 tensor_interval = 0;
/* Incremented when user space attaches probes again: the return of an earlier call has been missed.
 */
volatile __u32 epoch = 0;
/* Incremented when user space detaches the probes of source tensor: alloc_cpu's call of the
 * allocator may have been missed since. */
volatile __u32 tensor_epoch = 0;

const volatile __u64 page_size = 4096; /* bytes */

/* PID namespace of user space; inode 0: the initial one. */
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

/* Returns the PID of the current process as user space sees it; 0 in another PID namespace. */
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
