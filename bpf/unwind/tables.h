/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Data of user space about traced processes: executable mappings, unwind tables, and the place of
 * the Python interpreter. Caches of the data that walks have found there. */
#pragma once

#include "share.h"
#include "stack_types.h"

#define CACHE_ENTRIES 16384 /* a power of two */

/* Unwind tables by index: struct table_header, then words of 4 bytes, two per element. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_TABLES);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(map_flags, BPF_F_INNER_MAP | BPF_F_MMAPABLE);
			__uint(max_entries, 1);
			__type(key, __u32);
			__type(value, __u64);
		});
} unwind_tables SEC(".maps");

/* Executable mappings by process. User space replaces the inner array when they change. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, __u32); /* tgid */
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_ARRAY);
			__uint(map_flags, BPF_F_INNER_MAP);
			__uint(max_entries, 1);
			__uint(key_size, sizeof(__u32));
			__uint(value_size, sizeof(struct mapping));
		});
} mappings SEC(".maps");

/* Entry of a direct-mapped cache. Many threads write it without a lock: `check` is the key combined
 * with the value, so that halves of two writes never pass for an entry. */
struct cache_entry {
	__u64 value;
	__u64 check; /* key ^ value */
};

/* struct rule by code address and generation of the process's mappings. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CACHE_ENTRIES);
	__type(key, __u32);
	__type(value, struct cache_entry);
} rule_cache SEC(".maps");

/* time << 32 | fingerprint by address of a code object and generation. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CACHE_ENTRIES);
	__type(key, __u32);
	__type(value, struct cache_entry);
} fingerprint_cache SEC(".maps");

/* Returns the entry for a key, a hash, whether it holds that key or another. Sets `hit` and, on a
 * hit, the value. */
static __always_inline struct cache_entry *cache_lookup(void *map, __u64 key, __u64 *value,
							bool *hit)
{
	__u32 index = key & (CACHE_ENTRIES - 1);
	volatile struct cache_entry *entry = bpf_map_lookup_elem(map, &index);

	*hit = false;
	if (entry) {
		*value = entry->value;
		*hit = (entry->check ^ *value) == key;
	}
	return (struct cache_entry *)entry;
}

static __always_inline void cache_store(struct cache_entry *entry, __u64 key, __u64 value)
{
	if (!entry)
		return;

	entry->value = value;
	entry->check = key ^ value;
}

/* Interpreters by process; absent: the process runs no Python, or an unknown one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, __u32); /* tgid */
	__type(value, struct python);
} pythons SEC(".maps");

struct code_key {
	__u64 address;
	__u32 fingerprint;
	__u32 tgid;
};

/* Code objects that user space has received. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct code_key);
	__type(value, __u32); /* tgid */
} reported_codes SEC(".maps");

/* Requests to user space, each sent once until user space removes the entry: to read a process's
 * mappings (by tgid), or to build an unwind table soon (by ~index). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES + MAX_TABLES);
	__type(key, __u32);
	__type(value, __u32);
} requests SEC(".maps");

/* Keeps types in the object's BTF, from which bpf2go emits them, that no map refers to. */
union emitted {
	enum constant constant;
	enum word_kind word_kind;
	enum rule_kind rule_kind;
	enum fp_rule fp_rule;
	enum leaf_register leaf_register;
	struct rule rule;
	struct table_header table_header;
	struct mapping mapping;
	struct code code;
};
const union emitted *emitted __attribute__((unused));
