/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What user space tells of the traced processes: where code is mapped, how to unwind it, where the interpreter is. */
#pragma once

#include "maps.h"
#include "stack_types.h"

#define BPF_MAP_TYPE_ARRAY 2
#define FOUND 16384 /* entries, a power of two */
#define BPF_MAP_TYPE_LRU_HASH 9
#define BPF_MAP_TYPE_ARRAY_OF_MAPS 12
#define BPF_MAP_TYPE_HASH_OF_MAPS 13
#define BPF_F_MMAPABLE (1 << 10)
#define BPF_F_INNER_MAP (1 << 12)

/* Unwind tables by their index: struct table_header, then words of 4 bytes, two in each element. */
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

/* Executable mappings by process: replaced as a whole when they change. */
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

/* What has been found, by a hash of where and of the process's mappings. Many threads write at a time: `check` is that
 * hash combined with the value, so that halves of two entries are taken for none. */
struct found {
	__u64 value;
	__u64 check;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FOUND);
	__type(key, __u32);
	__type(value, struct found);
} found_rules SEC(".maps"); /* struct rule by address of code */

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FOUND);
	__type(key, __u32);
	__type(value, struct found);
} found_codes SEC(".maps"); /* time << 32 | fingerprint by address of code object */

/* Looks up what has been found. Gives its place, which may hold something else. */
static __always_inline struct found *recall(void *map, __u64 key, __u64 *value, bool *known)
{
	__u32 place = key & (FOUND - 1);
	volatile struct found *found = bpf_map_lookup_elem(map, &place);

	*known = false;
	if (found) {
		*value = found->value;
		*known = (found->check ^ *value) == key;
	}
	return (struct found *)found;
}

static __always_inline void remember(struct found *found, __u64 key, __u64 value)
{
	if (!found)
		return;
	found->value = value;
	found->check = key ^ value;
}

/* Interpreters by process; absent: none that is known. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES);
	__type(key, __u32); /* tgid */
	__type(value, struct python);
} pythons SEC(".maps");

/* Code objects that have been told. */
struct code_key {
	__u64 address;
	__u32 fingerprint;
	__u32 tgid;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct code_key);
	__type(value, __u32);
} codes SEC(".maps");

/* What has been asked of user space, once until it takes the entry out: to look at a process's mappings (by tgid), or
 * to make an unwind table soon (by ~index). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_PROCESSES + MAX_TABLES);
	__type(key, __u32);
	__type(value, __u32);
} asked SEC(".maps");

/* Makes bpf2go see types that are only used as numbers. */
union emitted {
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
