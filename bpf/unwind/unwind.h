/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Native frames: the mapping of an address, the unwind rule there, and the caller's registers by
 * that rule. */
#pragma once

#include "task.h"

#include "unwind/python.h"
#if defined(__TARGET_ARCH_x86)
#include "unwind/unwind_x86.h"
#else
#include "unwind/unwind_arm64.h"
#endif

#define SEARCH_MAPPINGS 13 /* log2(MAX_MAPPINGS) + 1 */
#define SEARCH_ROWS 11     /* PAGE_BITS + 1: a page may have a row at every address */

/* Reads a 4-byte word of an unwind table. */
static __always_inline bool table_word(void *table, __u32 offset, __u32 *word)
{
	__u32 at = offset / 2;
	__u32 *pair = bpf_map_lookup_elem(table, &at);

	if (!pair)
		return false;
	*word = pair[offset & 1];
	return true;
}

/* Returns the unwind table of the mapping; NULL: not built. The key is a copy on the stack: before
 * Linux 6.3 the verifier accepts no map key within a global function's argument. */
static __always_inline void *find_table(struct walk *walk)
{
	__u32 index = walk->mapping.table;

	return bpf_map_lookup_elem(&unwind_tables, &index);
}

/* Reads the header of the mapping's table, if the table has been built. */
static __always_inline void read_header(struct walk *walk)
{
	void *table = find_table(walk);

	walk->has_table = table && table_word(table, 0, &walk->table.pages) &&
			  table_word(table, 1, &walk->table.base) &&
			  table_word(table, 2, &walk->table.rows) &&
			  table_word(table, 3, &walk->table.rules);
}

/* Sets walk->mapping and walk->table to the mapping and the table of walk->address. Returns 0 if
 * there is no mapping.
 */
__attribute__((noinline)) int find_mapping(struct walk *walk)
{
	__u32 low = 1, high = 1, zero = 0, tgid;
	struct mapping *mapping;
	void *process;

	if (!walk)
		return 0;
	if (walk->address - walk->mapping.start < walk->mapping.end - walk->mapping.start)
		return 1;

	tgid = walk->stack.tgid;
	process = bpf_map_lookup_elem(&mappings, &tgid);
	if (!process)
		return 0;

	mapping = bpf_map_lookup_elem(process, &zero);
	if (mapping)
		high += mapping->start;

	for (int i = 0; i < SEARCH_MAPPINGS && low < high; i++) {
		__u32 middle = (low + high) / 2;

		mapping = bpf_map_lookup_elem(process, &middle);
		if (!mapping)
			return 0;
		if (mapping->end <= walk->address) {
			low = middle + 1;
		} else if (mapping->start > walk->address) {
			high = middle;
		} else {
			walk->mapping = *mapping;
			read_header(walk);
			return 1;
		}
	}
	return 0;
}

/* Sets walk->rule to the table's rule for walk->address; RULE_NONE: the table has none. */
__attribute__((noinline)) int search_table(struct walk *walk)
{
	__u32 page, low = 0, high = 0, row = 0, offset;
	struct rule *rule;
	__u64 relative;
	void *table;

	if (!walk)
		return 0;

	walk->rule.kind = RULE_NONE;
	table = find_table(walk);
	relative = walk->address - walk->mapping.bias - ((__u64)walk->table.base << PAGE_BITS);
	if (!table || relative >> PAGE_BITS >= walk->table.pages)
		return 0;

	page = relative >> PAGE_BITS;
	offset = relative & ((1 << PAGE_BITS) - 1);
	if (!table_word(table, sizeof(walk->table) / 4 + page, &low) ||
	    !table_word(table, sizeof(walk->table) / 4 + page + 1, &high))
		return 0;

	if (low >= high || !table_word(table, walk->table.rows + low, &row) || row >> 16 > offset) {
		if (!low)
			return 0;
		high = low--; /* the row before the page's first */
	}

	for (int i = 0; i < SEARCH_ROWS && high - low > 1; i++) {
		__u32 middle = (low + high) / 2;

		if (!table_word(table, walk->table.rows + middle, &row))
			return 0;
		if (row >> 16 <= offset)
			low = middle;
		else
			high = middle;
	}

	if (!table_word(table, walk->table.rows + low, &row))
		return 0;
	row = walk->table.rules / 2 + (row & 0xffff);
	rule = bpf_map_lookup_elem(table, &row);
	if (rule)
		walk->rule = *rule;
	return 0;
}

/* Returns a hash of the generation of the process's mappings, unlike any address; 0: none known. */
static __always_inline __u64 read_generation(__u32 tgid)
{
	void *process = bpf_map_lookup_elem(&mappings, &tgid);
	struct mapping *first;
	__u32 zero = 0;

	first = process ? bpf_map_lookup_elem(process, &zero) : NULL;
	return first ? mix(0, first->bias) : 0;
}

/* Sets walk->rule for walk->address, which is in walk->mapping. */
static __always_inline void find_rule_in_mapping(struct walk *walk)
{
	walk->packed_rule = 0;
	if (walk->mapping.kind == MAPPING_ANONYMOUS || (walk->has_table && !walk->table.pages))
		walk->rule.kind = RULE_GUESS;
	else if (!walk->has_table)
		walk->rule.kind = RULE_NOT_READY;
	else
		search_table(walk);

	if (in_eval_loop(walk))
		walk->rule.kind |= RULE_IN_LOOP;
	if (walk->mapping.kind == MAPPING_GREENLET)
		walk->rule.kind |= RULE_IN_GREENLET;
}

/* Sets walk->rule for walk->address. Returns 0 if no code is known there. */
static __always_inline int find_rule(struct walk *walk)
{
	__u64 key = mix(walk->generation, walk->address);
	bool hit;
	struct cache_entry *entry = cache_lookup(&rule_cache, key, &walk->packed_rule, &hit);

	if (hit)
		return 1;

	if (!find_mapping(walk))
		return 0;

	find_rule_in_mapping(walk);
	if ((walk->rule.kind & ~RULE_FLAGS) != RULE_NOT_READY)
		cache_store(entry, key, walk->packed_rule);
	return 1;
}

/* Steps to the caller by the frame pointer. */
static __always_inline int step_frame_pointer(struct walk *walk, enum word_kind kind)
{
	__u64 at = walk->fp;

	if (at < walk->sp || at & 7 || !read_stack(walk, at, &walk->fp, &walk->pc))
		return end_walk(walk, END_FRAME_POINTER);

	walk->slot = at + 8;
	walk->sp = at + 16;
	walk->kind = kind;
	return 0;
}

/* Steps to the caller of code that its file's table leaves out, such as the built-in functions of
 * V8. The frame pointer is believed only where it leads into known code: other such code is written
 * by hand, and may use the register as it likes. */
static __always_inline int step_without_rule(struct walk *walk)
{
	if (step_frame_pointer(walk, WORD_FRAME_POINTER))
		return end_walk(walk, END_NO_RULE);
	if (!walk->pc)
		return end_walk(walk, END_NO_RULE);

	walk->address = walk->pc - 1;
	return find_mapping(walk) ? 0 : end_walk(walk, END_NO_RULE);
}

/* Returns the value of a register in the innermost frame; 0 in other frames: unknown. */
static __always_inline __u64 leaf_register(struct walk *walk, __u32 which)
{
	if (walk->steps || which >= NUM_LEAF_REGISTERS)
		return 0;
	return walk->leaf[which];
}

/* Returns the canonical frame address; 0: unknown. */
static __always_inline __u64 find_cfa(struct walk *walk)
{
	__u64 extra = walk->rule.fp >> 4, offset = (__s64)walk->rule.cfa_offset, base = 0;

	switch (walk->rule.kind) {
	case RULE_SP:
	case RULE_RETURN_REGISTER:
		return walk->sp + offset;
	case RULE_FP:
		return walk->fp + offset;
	case RULE_SP_DEREF:
		return read_stack(walk, walk->sp + offset, &base, NULL) ? base + extra * 8 : 0;
	case RULE_FP_DEREF:
		return read_stack(walk, walk->fp + offset, &base, NULL) ? base + extra * 8 : 0;
	case RULE_REGISTER:
		base = leaf_register(walk, extra);
		return base ? base + offset : 0;
	case RULE_PLT:
		return walk->sp + ((walk->pc & 15) >= 11 ? 16 : 8);
	}
	return 0;
}

/* Steps to the caller by walk->rule. Returns 1 if the stack ends here. */
__attribute__((noinline)) int apply_rule(struct walk *walk)
{
	int stopped;
	__u64 cfa;

	if (!walk)
		return 1;
	switch (walk->rule.kind) {
	case RULE_NOT_READY:
		request_table(walk);
		return end_walk(walk, END_NOT_READY);
	case RULE_GUESS:
		return step_frame_pointer(walk, WORD_FRAME_POINTER);
	case RULE_NONE:
		return step_without_rule(walk);
	case RULE_UNSUPPORTED:
		return end_walk(walk, END_UNSUPPORTED);
	case RULE_STOP:
		return end_walk(walk, END_COMPLETE);
	case RULE_SIGNAL:
		return step_signal(walk);
	case RULE_FRAME_POINTER:
		return step_frame_pointer(walk, WORD_NATIVE);
	}

	cfa = find_cfa(walk);
	if (!cfa && walk->rule.kind == RULE_REGISTER)
		return end_walk(walk, END_UNSUPPORTED);
	if (cfa < walk->sp)
		return end_walk(walk, END_STACK_MEMORY);

	walk->kind = WORD_NATIVE;
	if (walk->rule.kind == RULE_RETURN_REGISTER) {
		walk->pc = leaf_register(walk, walk->rule.fp >> 4);
		walk->slot = 0;
		stopped = walk->pc ? 0 : end_walk(walk, END_UNSUPPORTED);
	} else {
		stopped = restore_caller(walk, cfa);
	}

	walk->sp = cfa;
	walk->link = 0;
	return stopped;
}
