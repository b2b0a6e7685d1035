/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Each target's share of the tables that all use, and its losses: a target that floods them loses
 * its own, and not another's. */
#pragma once

#include "maps.h"

/* User space adds a target, and sets the shares to the number of targets. A process without an
 * entry has no limit. Sleepable programs need a preallocated map. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 128);
	__type(key, __u32); /* tgid */
	__type(value, struct usage);
} usages SEC(".maps");

volatile struct share shares[NUM_TABLES] = {};
volatile __u64 taken[NUM_TABLES] = {}; /* entries of all targets */
volatile __u64 reader_turn = 0;        /* user space increments it when it has emptied `events` */

static __always_inline struct usage *usage_of(__u32 tgid)
{
	return bpf_map_lookup_elem(&usages, &tgid);
}

/* Counts a loss of a target; NULL: of nobody's in particular. */
static __always_inline void lose(struct usage *usage, enum counter what, __u64 bytes)
{
	count(what);
	if (!usage)
		return;
	__sync_fetch_and_add(&usage->lost[what - FIRST_DROP], 1);
	if (bytes)
		__sync_fetch_and_add(&usage->lost_bytes, bytes);
}

static __always_inline void lose_current(enum counter what)
{
	lose(usage_of(current_tgid()), what, 0);
}

/* Takes one place of a table for a target: one of its own, or of those that are open to all.
 * Returns false if it may not have more. */
static __always_inline bool take_place(struct usage *usage, enum table table)
{
	if (!usage)
		return true;
	if (usage->taken[table] >= shares[table].own && taken[table] >= shares[table].open)
		return false;

	__sync_fetch_and_add(&usage->taken[table], 1);
	__sync_fetch_and_add(&taken[table], 1);
	return true;
}

/* Gives places back. */
static __always_inline void leave_places(struct usage *usage, enum table table, __s64 number)
{
	if (!usage)
		return;
	__sync_fetch_and_add(&usage->taken[table], -number);
	__sync_fetch_and_add(&taken[table], -number);
}

/* Returns whether a target may send an event of so many bytes: within its share of one turn of the
 * reader, or while the ring buffer has room for all. */
static __always_inline bool may_send(struct usage *usage, __u64 bytes)
{
	__u64 turn = reader_turn;

	if (!usage)
		return true;
	if (usage->turn != turn) {
		usage->turn = turn;
		usage->taken[TABLE_EVENTS] = 0;
	}
	__sync_fetch_and_add(&usage->taken[TABLE_EVENTS], bytes);
	return usage->taken[TABLE_EVENTS] <= shares[TABLE_EVENTS].own ||
	       bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) < shares[TABLE_EVENTS].open;
}

/* User space runs it after it has deleted entries of a table itself, or, with a negative number,
 * added them. */
SEC("syscall")
int on_deletion(struct deletion *ctx)
{
	__u32 tgid = ctx->tgid, table = ctx->table;

	if (table < NUM_TABLES)
		leave_places(usage_of(tgid), table, ctx->entries);
	return 0;
}
