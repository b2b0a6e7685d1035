/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What is allocated on GPUs, or pinned for them: the map of what is alive, and what is kept per thread. */
#pragma once

#include "live.h"

/* What is alive. It has its memory from the start, as `live` has. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct device_address);
	__type(value, struct device_memory);
} device_live SEC(".maps");

/* The PID of each process that uses a GPU as the initial PID namespace counts, which is how NVML does. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);   /* tgid, as user space counts */
	__type(value, __u32); /* tgid */
} device_users SEC(".maps");

/* The call of CUDA's driver that a thread is in. */
struct device_call {
	__u64 sp;   /* stack pointer at its entry; 0: in none */
	__u64 slot; /* where the address or the handle will be written */
	__u64 size; /* bytes asked for; of a pitch, rows */
	__u64 pitch_slot;
	struct device_mapping undone; /* of an unmapping the first mapping; size 0: it is not known */
	enum probe_cookie cookie;
	struct device_address key;   /* what is registered, or given back */
	struct device_memory memory; /* what is allocated, or was there */
	bool had;                    /* it was there */
};

struct device_thread {
	struct device_call call;
	struct sampler sampler; /* of blocks */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct device_thread);
} device_threads SEC(".maps");

static __always_inline struct device_thread *current_device_thread(void)
{
	struct device_thread *thread =
		bpf_task_storage_get(&device_threads, bpf_get_current_task_btf(), NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!thread)
		count(DROP_THREAD_STATE);
	return thread;
}

static __always_inline void note_device_user(__u32 tgid)
{
	__u32 initial = bpf_get_current_pid_tgid() >> 32;

	if (!bpf_map_lookup_elem(&device_users, &tgid))
		bpf_map_update_elem(&device_users, &tgid, &initial, BPF_ANY);
}

static __always_inline void device_put(const struct device_address *key, const struct device_memory *memory)
{
	long err = bpf_map_update_elem(&device_live, key, memory, BPF_NOEXIST);

	if (err == -EEXIST) {
		count(DROP_MISSED_FREE);
		err = bpf_map_update_elem(&device_live, key, memory, BPF_ANY);
	}
	if (err)
		count(DROP_DEVICE_FULL);
}

/* Adds what has just been allocated. */
static __always_inline void device_add(const struct device_address *key, struct device_memory *memory)
{
	struct tally_key tally = {
		.stack = memory->stack,
		.tgid = key->tgid,
		.interval = memory->interval,
		.kind = memory->kind,
		.size_class = size_class(memory->size),
		.gpu = memory->gpu,
	};

	memory->born = bpf_ktime_get_ns();
	memory->references = 1;
	device_put(key, memory);
	tally_add(&tally, memory->size);
}

/* Takes out what is freed. false: it is older than the attach, or has not been sampled. */
static __always_inline bool device_take(const struct device_address *key, struct device_memory *taken)
{
	struct device_memory *found = bpf_map_lookup_elem(&device_live, key);

	if (!found)
		return false;
	*taken = *found;
	return bpf_map_delete_elem(&device_live, key) == 0;
}
