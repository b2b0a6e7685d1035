/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Memory that is allocated on GPUs, or pinned for them: its live map, and per-thread state. */
#pragma once

#include "live.h"

/* Preallocated, as `live` is. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 16);
	__type(key, struct gpu_address);
	__type(value, struct gpu_memory);
} gpu_live SEC(".maps");

/* PIDs in the initial namespace, by which NVML names processes, of the processes that use a GPU. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);   /* tgid in user space's namespace */
	__type(value, __u32); /* tgid in the initial namespace */
} gpu_users SEC(".maps");

/* CUDA driver call that a thread is in. */
struct gpu_call {
	__u64 sp;   /* stack pointer at the entry; 0: the thread is in none */
	__u64 slot; /* address of the result */
	__u64 size; /* bytes requested; cuMemAllocPitch: rows */
	__u64 pitch_slot;
	struct gpu_mapping unmapped; /* cuMemUnmap: first mapping of the range; size 0: unknown */
	enum probe_cookie cookie;
	__u32 nested;             /* calls since that count as parts of this one */
	struct gpu_address key;   /* of the memory that is registered or freed */
	struct gpu_memory memory; /* that is allocated, or was at key */
	bool was_live;            /* `memory` has been removed from gpu_live */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct gpu_call);
} gpu_calls SEC(".maps");

/* Returns the driver call of the current thread, allocated on first use; NULL: out of memory. */
static __always_inline struct gpu_call *current_gpu_call(void)
{
	struct gpu_call *call = bpf_task_storage_get(&gpu_calls, bpf_get_current_task_btf(), NULL,
						     BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!call)
		lose_current(DROP_THREAD_STATE);
	return call;
}

static __always_inline void record_gpu_user(__u32 tgid)
{
	__u32 initial = bpf_get_current_pid_tgid() >> 32;

	if (!bpf_map_lookup_elem(&gpu_users, &tgid))
		bpf_map_update_elem(&gpu_users, &tgid, &initial, BPF_ANY);
}

/* Adds memory to `gpu_live`. Where the address is still present, its free has been missed. */
static __always_inline void gpu_live_put(const struct gpu_address *key,
					 const struct gpu_memory *memory)
{
	int err = bpf_map_update_elem(&gpu_live, key, memory, BPF_NOEXIST);

	if (err == -EEXIST) {
		lose(usage_of(key->tgid), DROP_MISSED_FREE, 0);
		err = bpf_map_update_elem(&gpu_live, key, memory, BPF_ANY);
	}

	if (err)
		lose(usage_of(key->tgid), DROP_GPU_FULL, 0);
}

/* Adds memory that has just been allocated to `gpu_live` and to the tallies. */
static __always_inline void gpu_live_add(const struct gpu_address *key, struct gpu_memory *memory)
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

	gpu_live_put(key, memory);
	tally_add(&tally, memory->size, 0);
}

/* Removes freed memory from `gpu_live` and, unless `removed` is NULL, copies it there. Returns
 * false if there is none: it was allocated before tracing started, or not sampled. */
static __always_inline bool gpu_live_remove(const struct gpu_address *key,
					    struct gpu_memory *removed)
{
	struct gpu_memory *found = bpf_map_lookup_elem(&gpu_live, key);

	if (!found)
		return false;

	if (removed)
		*removed = *found;
	return bpf_map_delete_elem(&gpu_live, key) == 0;
}
