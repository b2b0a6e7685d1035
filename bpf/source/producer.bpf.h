/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Source `heap` where the process itself samples its heap: USDT probes
 * otel_memory:alloc(pointer, size, weighted_bytes) and otel_memory:free(pointer), which an
 * allocator, an SDK or our own preloaded library has. Each event is one sampled object:
 * https://github.com/open-telemetry/opentelemetry-ebpf-profiler
 * (design-docs/00003-memory-profiling)
 */
#pragma once

#include "attach.h"
#include "live.h"
#include "regs.h"

#include "source/descendants.bpf.h"
#include "source/process.bpf.h"
#include "unwind/stack.h"

/* Bytes that one object may claim to have, or to represent. */
#define MAX_CLAIMED_BYTES (1ULL << 40)

/* The probes that are attached, by their attach cookie. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct producer_probe);
} producer_probes SEC(".maps");

/* Reads an argument of a probe. Returns false if it is unreadable. */
static __always_inline bool read_operand(__u64 *value, const struct operand *operand,
					 struct pt_regs *regs)
{
	__u32 size = operand->size, unused;
	__u64 word = operand->value, reg = 0;

	if (operand->kind != OPERAND_CONSTANT &&
	    bpf_probe_read_kernel(&reg, sizeof(reg), (void *)regs + operand->reg))
		return false;

	switch (operand->kind) {
	case OPERAND_CONSTANT:
		break;
	case OPERAND_REGISTER:
		word = reg;
		break;
	default:
		if (size > sizeof(word))
			return false;
		reg += word;
		word = 0;
		if (bpf_probe_read_user(&word, size, (void *)reg))
			return false;
	}

	unused = 64 - 8 * size; /* bits */
	*value = operand->is_signed ? (__u64)((__s64)(word << unused) >> unused)
				    : word << unused >> unused;
	return true;
}

/* Adds an object that a producer has sampled. */
static __always_inline void add_weighted(struct pt_regs *regs, struct address *key, __u64 size,
					 __u64 weight)
{
	struct allocation allocation = { .size = size, .weight = weight };
	struct tally_key tally = { .tgid = key->tgid, .size_class = size_class(size) };

	tally.stack = capture_stack(regs, key->tgid, false, COUNT_PRODUCER_WALK_NS);
	allocation.stack = tally.stack;
	allocation.born = bpf_ktime_get_ns();
	count(COUNT_PRODUCER_SAMPLES);
	charge_current(costs.sample);
	live_add(&live, TABLE_LIVE, key, &allocation);
	tally_add(&tally, size, weight);
}

/* Charges the work of our preloaded library in the calls that a sample represents: weight/size
 * mallocs, and their frees. */
static __always_inline void charge_shim(__u64 size, __u64 weight)
{
	struct thread *thread = costs.shim_pair ? current_thread() : NULL;

	if (thread)
		add_charge(&thread->shim, busiest_shim,
			   size ? weight * costs.shim_pair / size : costs.shim_pair);
}

/* How many calls a probe counts as in a process that is not traced. Our library's run in all
 * programs that it was preloaded into. Most end soon, and are slowed down by several times the
 * trap: they fill the library's tables, which are new to them. Calls of a process that does not
 * descend from the command are not the command's. */
#define UNTRACED_CALLS 4

/* Returns the probe that runs; NULL: its process is not traced, or user space has removed it. */
static __always_inline struct producer_probe *current_probe(struct pt_regs *regs, __u32 tgid)
{
	__u64 cookie = bpf_get_attach_cookie(regs);
	bool traced = is_traced(tgid);
	__u64 calls = traced ? 1 : UNTRACED_CALLS;

	if (!traced && !is_of_command())
		return NULL;
	count_many(COUNT_PRODUCER_CALLS, calls);
	charge_current(calls * costs.entry);
	if (!traced)
		return NULL;
	return bpf_map_lookup_elem(&producer_probes, &cookie);
}

/* At otel_memory:alloc. Its claims are bounded. No object represents less than itself, and one
 * without bytes represents one object. */
SEC("uprobe")
int producer_alloc(struct pt_regs *ctx)
{
	struct address key = make_address(current_tgid(), 0);
	struct producer_probe *probe;
	__u64 size, weight;

	keep_task_stack(ctx, &no_programs);
	probe = current_probe(ctx, key.tgid);
	if (!probe)
		return 0;

	count(COUNT_ALLOCATIONS);
	if (!read_operand(&key.address, &probe->pointer, ctx) ||
	    !read_operand(&size, &probe->size, ctx) ||
	    !read_operand(&weight, &probe->weight, ctx)) {
		lose_current(DROP_OUT_POINTER);
		return 0;
	}
	if (!key.address)
		return 0;

	size = size > MAX_CLAIMED_BYTES ? MAX_CLAIMED_BYTES : size;
	weight = weight > MAX_CLAIMED_BYTES ? MAX_CLAIMED_BYTES : weight > size ? weight : size;
	charge_shim(size, weight);
	add_weighted(ctx, &key, size, weight ? weight : 1);
	return 0;
}

/* At otel_memory:free. */
SEC("uprobe")
int producer_free(struct pt_regs *ctx)
{
	struct address key = make_address(current_tgid(), 0);
	struct producer_probe *probe;

	keep_task_stack(ctx, &no_programs);
	probe = current_probe(ctx, key.tgid);
	if (!probe || !read_operand(&key.address, &probe->pointer, ctx) || !key.address)
		return 0;

	count(COUNT_FREES);
	if (!live_remove(&live, TABLE_LIVE, &key, NULL))
		count(COUNT_FREES_UNTRACKED);
	return 0;
}

/* At allocscope:start of our preloaded library: a program of the command has started, or a fork
 * takes its first sample. One of another PID namespace has PID 0: it waits, too. */
SEC("uprobe")
int shim_start(struct pt_regs *ctx)
{
	struct event *event;

	if (!is_of_command() || !is_first_start())
		return 0;
	event = bpf_ringbuf_reserve(&starting, sizeof(*event), 0);
	submit_event(event, EVENT_START, current_tgid(), is_fork(), BPF_RB_FORCE_WAKEUP);
	return 0;
}

/* At the markers of our preloaded library, which no thread executes. They are attached for their
 * semaphore. */
SEC("uprobe")
int shim_marker(struct pt_regs *ctx)
{
	return 0;
}
