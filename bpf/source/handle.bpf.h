/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What the driver knows by handles (cuMemCreate): it lives until each handle has been released, and each mapping
 * undone. */
#pragma once

#include "source/gpu.bpf.h"

#define MOST_UNMAPPED 64 /* mappings that one call undoes; torch undoes one at a time */

/* Where the memory of handles is. It has its memory from the start, as `live` has. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct device_address);
	__type(value, struct device_mapping);
} device_mappings SEC(".maps");

/* Takes out what is given back; of what has to be released more often, once. */
static __always_inline void give_back(struct device_call *call, __u64 address, enum device_space space)
{
	struct device_memory *found;

	call->key.address = address;
	call->key.space = space;
	found = bpf_map_lookup_elem(&device_live, &call->key);
	if (found && found->references > 1 && __sync_fetch_and_add(&found->references, -1) > 1)
		call->memory = *found;
	else
		call->had = device_take(&call->key, &call->memory);
}

static __always_inline bool device_retain(const struct device_address *key)
{
	struct device_memory *found = bpf_map_lookup_elem(&device_live, key);

	if (found)
		__sync_fetch_and_add(&found->references, 1);
	return found;
}

/* Memory whose handle is not known is older than the attach, or another process's. */
static __always_inline void device_map(const struct device_address *key, __u64 handle, __u64 size)
{
	struct device_address of = { .address = handle, .tgid = key->tgid, .space = SPACE_HANDLE };
	struct device_mapping mapping = { .handle = handle, .size = size };

	if (!device_retain(&of))
		return;
	if (bpf_map_update_elem(&device_mappings, key, &mapping, BPF_ANY))
		count(DROP_DEVICE_FULL);
}

/* Takes the mapping at an address out, before another thread can map something there; false: none is known. The memory
 * keeps its reference to it. */
static __always_inline bool mapping_take(const struct device_address *key, struct device_mapping *taken)
{
	struct device_mapping *found = bpf_map_lookup_elem(&device_mappings, key);

	if (!found)
		return false;
	*taken = *found;
	bpf_map_delete_elem(&device_mappings, key);
	return true;
}

static __always_inline void device_drop(__u32 tgid, __u64 handle)
{
	struct device_address of = { .address = handle, .tgid = tgid, .space = SPACE_HANDLE };
	struct device_memory *memory = bpf_map_lookup_elem(&device_live, &of);

	if (memory && __sync_fetch_and_add(&memory->references, -1) == 1)
		bpf_map_delete_elem(&device_live, &of);
}

/* A range has been unmapped, whose first mapping has been taken out before. */
static __always_inline void device_unmap(struct device_address *key, struct device_mapping *undone, __u64 size)
{
	__u64 end = key->address + size;

	for (int i = 0; i < MOST_UNMAPPED && undone->size; i++) {
		device_drop(key->tgid, undone->handle);
		key->address += undone->size;
		undone->size = 0;
		if (key->address < end)
			mapping_take(key, undone);
	}
}
