/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The live map: allocations that have not been freed. It alone is authoritative; user space does
 * not rebuild it from events. */
#pragma once

#include "sample.h"
#include "share.h"

static __always_inline struct address make_address(__u32 tgid, __u64 address)
{
	struct address key = { .address = address, .tgid = tgid };

	return key;
}

/* Returns the bytes that a sampled allocation represents: its weight or, where it has none, the
 * larger of its size and the interval, which is at most the weight that user space would give it.
 */
static __always_inline __u64 represented(const struct allocation *allocation)
{
	if (allocation->weight)
		return allocation->weight;
	return allocation->size > allocation->interval ? allocation->size : allocation->interval;
}

/* Adds an allocation to `live` or `tensors`. Where the address is still present, its free has been
 * missed. An error is an int, here and below: before Linux 6.4 the functions of maps, which the
 * verifier calls instead of the helper, leave the upper half of the register undefined. */
static __always_inline void live_add(void *map, enum table table, struct address *key,
				     struct allocation *allocation)
{
	struct usage *usage = usage_of(key->tgid);
	bool has_place = take_place(usage, table);
	int err = bpf_map_update_elem(map, key, allocation, has_place ? BPF_NOEXIST : BPF_EXIST);

	if (has_place && err)
		leave_places(usage, table, 1);
	if (err == -EEXIST) {
		lose(usage, DROP_MISSED_FREE, 0);
		err = bpf_map_update_elem(map, key, allocation, BPF_EXIST);
	} else if (!has_place && !err) {
		lose(usage, DROP_MISSED_FREE, 0);
	}

	if (err)
		lose(usage, DROP_LIVE_FULL, represented(allocation));
}

/* Removes the allocation at key and, unless `removed` is NULL, copies it there. Returns false if
 * there is none. */
static __always_inline bool live_remove(void *map, enum table table, struct address *key,
					struct allocation *removed)
{
	struct allocation *found = bpf_map_lookup_elem(map, key);

	if (!found)
		return false;
	if (removed)
		*removed = *found;

	if (bpf_map_delete_elem(map, key))
		return false;
	leave_places(usage_of(key->tgid), table, 1);
	return true;
}

/* Returns 4 log2(size), rounded down: the position of the highest bit, then the two bits below. */
static __always_inline __u32 size_class(__u64 size)
{
	__u32 high = size >> 32;
	__u32 bit = high ? 32 + highest_bit(high) : highest_bit((__u32)size);

	if (bit < 2)
		return size;

	return 4 * bit + ((size >> (bit - 2)) & 3);
}

/* Counts an allocation for alloc_objects and alloc_space. */
static __always_inline void tally_add(const struct tally_key *key, __u64 size, __u64 weight)
{
	struct tally none = {}, *sum = bpf_map_lookup_elem(&tallies, key);
	int err = 0;

	if (!sum) {
		err = bpf_map_update_elem(&tallies, key, &none, BPF_NOEXIST);
		sum = bpf_map_lookup_elem(&tallies, key);
	}

	if (!sum) {
		lose(usage_of(key->tgid), err == -E2BIG ? DROP_TALLY_FULL : DROP_NO_MEMORY, 0);
		return;
	}

	__sync_fetch_and_add(&sum->objects, 1);
	__sync_fetch_and_add(&sum->bytes, size);
	if (weight)
		__sync_fetch_and_add(&sum->weight, weight);
}
