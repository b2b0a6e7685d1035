/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Call sites: a hash of the innermost part of a stack, at a fraction of the cost of a walk. Stacks
 * of one site are alike. Where a program makes the same call very often, a few of its stacks are
 * walked, and the rest of the calls take the last one. */
#pragma once

#include "unwind/stack.h"

#define SITE_FRAMES 3                   /* native frames that tell one site from another */
#define SITE_PERIOD_NS (1000000000 / 8) /* between two walks of a site, in the long run */
#define SITE_BURST 64                   /* walks of a site at once, after a pause */
#define RESERVE_NS 1000000000           /* of budget that new sites may use ahead of all others */
#define REPEATS_PART 8                  /* of the budget, one in so many, is for walked sites */
#define BUDGET_SECONDS 10               /* that unused walk time is kept */

/* Value of `call_sites`. */
struct call_site {
	__u64 stack; /* ID of the stack walked last; 0: none */
	__u64 due;   /* ns, CLOCK_MONOTONIC: used up by the walks so far */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64); /* hash_site() */
	__type(value, struct call_site);
} call_sites SEC(".maps");

/* Time that walks of mapping calls and page faults may take, in ns per second, over all sites; 0:
 * none. User space sets it. */
volatile __u64 walk_budget = 1000000000;
/* ns, CLOCK_MONOTONIC: used up by the walks so far. */
volatile __u64 walks_due = 0;
volatile __u64 repeats_due = 0; /* of the share of sites with an earlier walk */

/* Adds the function and the line that Python executes to walk->hash. */
__attribute__((noinline)) int hash_python_line(struct walk *walk)
{
	__u32 size;

	if (!walk)
		return 0;
	if (!load_python(walk) || !start_python(walk) || !walk->frame)
		return 0;

	size = walk->python.frame_bytes;
	if (size > FRAME_BYTES || !read_user(walk->buffer, size, walk->frame))
		return 0;

	walk->hash = mix(walk->hash, frame_word(walk, walk->python.frame_code));
	walk->hash = mix(walk->hash, frame_word(walk, walk->python.frame_instruction));
	return 0;
}

/* Adds the native frame reached to walk->hash and steps to its caller. Returns 1 if there is none,
 * or if Python's evaluation loop runs it. */
__attribute__((noinline)) int hash_frame(struct walk *walk)
{
	if (!walk || !locate_code(walk) || walk->rule.kind & RULE_IN_LOOP)
		return 1;

	walk->rule.kind &= ~RULE_FLAGS;
	walk->hash = mix(walk->hash, walk->pc);
	if (apply_rule(walk))
		return 1;
	walk->steps++;
	return 0;
}

/* Sets walk->hash to the site at the registers in the walk. */
__attribute__((noinline)) int hash_site(struct walk *walk)
{
	if (!walk)
		return 0;

	begin_walk(walk);
	/* Threads that run the same code are one site: their stacks lie at the same distance from
	 * their thread pointers. */
	walk->hash = mix(walk->hash, walk->sp - thread_pointer());

	for (int i = 0; i < SITE_FRAMES; i++)
		if (hash_frame(walk))
			break;
	return hash_python_line(walk);
}

/* Returns the moment so many ns before now; 0 if the machine was not up then. */
static __always_inline __u64 before(__u64 now, __u64 ns)
{
	return now > ns ? now - ns : 0;
}

/* Returns whether the budget of all sites allows a walk now. */
static __always_inline bool is_walk_allowed(__u64 now)
{
	return walk_budget && walks_due <= now;
}

/* Returns whether it allows a walk of a site. A Python program maps from ever new lines and depths,
 * of which each may be walked again 8 times a second: these walks leave most of the budget. */
static __always_inline bool is_site_allowed(const struct call_site *site, __u64 now)
{
	if (!site)
		return is_walk_allowed(now + RESERVE_NS);
	return is_walk_allowed(now) && repeats_due <= now;
}

/* Takes the time of a walk out of a budget in ns per second. */
static __always_inline void use_part(volatile __u64 *due, __u64 now, __u64 ns, __u64 budget)
{
	__u64 earliest = before(now, BUDGET_SECONDS * 1000000000ULL);

	if (!budget)
		return;
	if (*due < earliest)
		*due = earliest;
	__sync_fetch_and_add(due, ns * 1000000000 / budget);
}

/* Takes the time of a walk out of the budget of all sites. */
static __always_inline void use_budget(__u64 now, __u64 ns)
{
	use_part(&walks_due, now, ns, walk_budget);
}

/* Returns the stack ID of a mapping call of the current thread, walked or from an earlier call of
 * the same site; 0: none. Calls of different lengths are different sites. Calls of length 0, which
 * is brk, are a sample in any case: a call that is not walked is no loss. */
static __always_inline __u64 site_stack(struct pt_regs *regs, __u32 tgid, __u64 length, __u64 now)
{
	struct walk *walk = start_walk(regs, tgid);
	struct call_site *site, next = {};
	__u64 key, walk_ns;

	if (!walk)
		return 0;

	next.due = before(now, SITE_BURST * (__u64)SITE_PERIOD_NS);
	walk->at_entry = false;
	hash_site(walk);
	key = mix(walk->hash, length);

	site = bpf_map_lookup_elem(&call_sites, &key);
	if (site && site->due > next.due)
		next.due = site->due;

	if (next.due > now || !is_site_allowed(site, now)) {
		if (length)
			count(site ? COUNT_SITE_STACKS : DROP_MAPPING_WALKS);
		return site ? site->stack : 0;
	}

	next.due += SITE_PERIOD_NS;
	next.stack = capture_stack(regs, tgid, false, COUNT_KERNEL_WALK_NS);
	walk_ns = bpf_ktime_get_ns() - now;
	use_budget(now, walk_ns);
	if (site)
		use_part(&repeats_due, now, walk_ns, walk_budget / REPEATS_PART);
	bpf_map_update_elem(&call_sites, &key, &next, BPF_ANY);
	return next.stack;
}
