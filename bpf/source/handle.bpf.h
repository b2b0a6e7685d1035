/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Memory that the CUDA driver API refers to by handle (cuMemCreate). It lives until each reference
 * to the handle has been released and each mapping undone. */
#pragma once

#include "source/gpu.bpf.h"

#define MAX_UNMAPPED 64 /* mappings that one cuMemUnmap undoes; PyTorch undoes one at a time */

/* Handles by the address to which they are mapped. Preallocated, as `live` is. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct gpu_address);
	__type(value, struct gpu_mapping);
} gpu_mappings SEC(".maps");

/* Releases one reference to the memory at `address`. The last one removes it from `gpu_live`. */
static __always_inline void release_ref(struct gpu_call *call, __u64 address, enum gpu_space space)
{
	struct gpu_memory *found;

	call->key.address = address;
	call->key.space = space;

	found = bpf_map_lookup_elem(&gpu_live, &call->key);
	if (found && found->references > 1 && __sync_fetch_and_add(&found->references, -1) > 1)
		call->memory = *found;
	else
		call->was_live = gpu_live_remove(&call->key, &call->memory);
}

/* Takes a reference. Returns false if the memory is unknown. */
static __always_inline bool retain_ref(const struct gpu_address *key)
{
	struct gpu_memory *found = bpf_map_lookup_elem(&gpu_live, key);

	if (found)
		__sync_fetch_and_add(&found->references, 1);
	return found;
}

/* Adds a mapping, which holds a reference to the handle. Memory with an unknown handle was
 * allocated before tracing started, or by another process. */
static __always_inline void gpu_mapping_add(const struct gpu_address *key, __u64 handle, __u64 size)
{
	struct gpu_address memory = { .address = handle, .tgid = key->tgid, .space = SPACE_HANDLE };
	struct gpu_mapping mapping = { .handle = handle, .size = size };

	if (!retain_ref(&memory))
		return;

	if (bpf_map_update_elem(&gpu_mappings, key, &mapping, BPF_ANY))
		lose(usage_of(key->tgid), DROP_GPU_FULL, 0);
}

/* Removes the mapping at an address and copies it to `removed`, before another thread can map
 * memory there. The caller has to release its reference. Returns false if there is none. */
static __always_inline bool gpu_mapping_pop(const struct gpu_address *key,
					    struct gpu_mapping *removed)
{
	struct gpu_mapping *found = bpf_map_lookup_elem(&gpu_mappings, key);

	if (!found)
		return false;

	*removed = *found;
	bpf_map_delete_elem(&gpu_mappings, key);
	return true;
}

/* Releases the reference of a mapping to its handle. */
static __always_inline void release_handle(__u32 tgid, __u64 handle)
{
	struct gpu_address key = { .address = handle, .tgid = tgid, .space = SPACE_HANDLE };
	struct gpu_memory *memory = bpf_map_lookup_elem(&gpu_live, &key);

	if (memory && __sync_fetch_and_add(&memory->references, -1) == 1)
		bpf_map_delete_elem(&gpu_live, &key);
}

/* Undoes the mappings of an unmapped range, the first of which gpu_mapping_pop() has removed at the
 * entry of the call. */
static __always_inline void gpu_mapping_unmap(struct gpu_address *key, struct gpu_mapping *unmapped,
					      __u64 size)
{
	__u64 end = key->address + size;

	for (int i = 0; i < MAX_UNMAPPED && unmapped->size; i++) {
		release_handle(key->tgid, unmapped->handle);

		key->address += unmapped->size;
		unmapped->size = 0;
		if (key->address < end)
			gpu_mapping_pop(key, unmapped);
	}
}
