/* SPDX-License-Identifier: Apache-2.0 */
/* Which allocations are sampled: each byte that a thread requests ends an exponential distance with
 * the same probability, so that an object of s bytes is sampled with probability p = 1 -
 * e^(-s/interval), and represents s/p bytes. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "probes.h"
#include "table.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)

/* At level N the interval is 2^(N-1) bytes. At level 0 nothing is sampled. Each marker takes a
 * level off: they go one by one when the tracer dies, and the interval must not become shorter. */
enum {
	LEVEL_IDLE = 0,
	LEVEL_EVERY = 1,    /* every allocation, even of no bytes */
	LEVEL_DEFAULT = 20, /* 512 KiB */
	LEVEL_MAX = 31,
};

/* A thread notices a change of the level after so many bytes at most. */
static const uint64_t max_countdown = 1 << 20;

static __thread struct {
	size_t countdown; /* bytes until the next slow path; an allocation of so many or more takes
			     it */
	uint64_t rest;    /* bytes of the distance to the next sample that follow the countdown */
	uint64_t random;  /* state of the generator */
	uint64_t process; /* whose generator that is, by its number; 0 before the first draw */
	uint32_t level;   /* at which the distance was drawn */
	uint32_t depth;   /* calls of the next allocator that may call ours */
	uint32_t slow_calls; /* allocations of the slow path */
} thread;

static unsigned level_now(void)
{
	unsigned markers = allocscope_interval_semaphore;

	if (!otel_memory_alloc_semaphore || !shared)
		return LEVEL_IDLE;
	if (!markers)
		return LEVEL_DEFAULT;
	return markers < LEVEL_MAX ? LEVEL_MAX + 1 - markers : LEVEL_EVERY;
}

static double interval_of(unsigned level)
{
	return (double)(1ull << (level - 1));
}

/* Returns whether a process is a fork of another, once. */
static int is_new_fork(void)
{
	uint64_t none = 0;

	if (LIKELY(shared->process))
		return 0;
	return __atomic_compare_exchange_n(
		&shared->process, &none,
		__atomic_add_fetch(&shared->tree->processes, 1, __ATOMIC_RELAXED), 0,
		__ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* A fork must not draw what its parent draws: each thread of a tree has a seed of its own. */
static uint64_t next_random(void)
{
	const uint64_t golden = 0x9e3779b97f4a7c15;

	if (thread.process != shared->process) {
		thread.process = shared->process;
		thread.random =
			mix(__atomic_fetch_add(&shared->tree->seed, 2 * golden, __ATOMIC_RELAXED));
	}
	return mix(thread.random += golden);
}

/* -ln((r + 1) / 2^53) for 53 random bits r, by the series of atanh. Its error is below 1e-9. */
static double minus_log(uint64_t r)
{
	const double ln2 = 0.6931471805599453, sqrt2 = 1.4142135623730951;
	union {
		double value;
		uint64_t bits;
	} u = { .value = (double)(r + 1) };
	int exponent = (int)(u.bits >> 52) - 1023 - 53;

	u.bits = (u.bits & 0xfffffffffffff) | 0x3ff0000000000000;
	if (u.value > sqrt2) {
		u.value /= 2;
		exponent++;
	}
	double t = (u.value - 1) / (u.value + 1), t2 = t * t;

	return -exponent * ln2 -
	       2 * t * (1 + t2 * (1 / 3.0 + t2 * (1 / 5.0 + t2 * (1 / 7.0 + t2 / 9))));
}

/* Returns a distance in bytes, of which an allocation of so many or more has reached the end. */
static uint64_t draw_distance(unsigned level)
{
	if (level == LEVEL_IDLE)
		return max_countdown;
	if (level == LEVEL_EVERY)
		return 0;
	return (uint64_t)(minus_log(next_random() >> 11) * interval_of(level)) + 1;
}

/* Returns s/(1 - e^(-s/interval)), rounded: interval * f(x) with f(x) = x/(1 - e^-x) and x =
 * s/interval. For small x a series has f, and f(2x) = 2f(x)^2/(2f(x) - x). The error is below 1e-7.
 */
static uint64_t weight_of(size_t size, unsigned level)
{
	double interval = interval_of(level), x = (double)size / interval;
	int doublings = 0;

	if (level == LEVEL_EVERY || x > 40)
		return size;
	for (; x > 1; x /= 2)
		doublings++;

	double x2 = x * x;
	double f =
		1 + x / 2 + x2 * (1 / 12.0 + x2 * (-1 / 720.0 + x2 * (1 / 30240.0 - x2 / 1209600)));

	for (; doublings; doublings--) {
		f = 2 * f * f / (2 * f - x);
		x *= 2;
	}
	return (uint64_t)(interval * f + 0.5);
}

/* Counts an allocation of the slow path. Returns the level at which it is sampled, LEVEL_IDLE for
 * not at all. What was drawn holds until its end, so that a change of the level leaves every
 * estimate as it was. */
static unsigned sampling_level(size_t size)
{
	unsigned now = level_now(), sampled_at;
	uint64_t distance = thread.countdown + thread.rest;

	if (thread.level == LEVEL_IDLE) {
		thread.level = now;
		distance = draw_distance(now);
	}

	sampled_at = size >= distance ? thread.level : LEVEL_IDLE;
	if (size >= distance || now != thread.level) {
		thread.level = now;
		distance = draw_distance(now);
	} else {
		distance -= size;
	}

	thread.countdown = distance < max_countdown ? distance : max_countdown;
	thread.rest = distance - thread.countdown;
	return now ? sampled_at : LEVEL_IDLE;
}

/* A site is what allocates objects of about one size, by one call, at one depth of the stack; some
 * share a place in the array. Most sites make temporaries. These take most of the samples, and show
 * nothing of what is kept: where nearly all sampled objects of a site have died, it is sampled at
 * the next coarser level, and so on. The weight is that of the level, so that sums stay right. */
enum { SITES = 1 << SITE_BITS, MAX_COARSENING = 3 /* levels */ };
enum { REVIEW = 8 /* samples */, MANY_DEATHS = 7, FEW_DEATHS = 4 };

static volatile struct site {
	uint8_t samples, deaths; /* since the last review */
	uint8_t coarsening;      /* levels */
} sites[SITES];

static unsigned site_of(size_t size, const void *caller, const void *frame)
{
	uint64_t depth = (uintptr_t)frame - (uintptr_t)&thread;
	size_t about = size & ~0ull << (61 - __builtin_clzll(size | 7)); /* its first three bits */

	return mix(mix((uintptr_t)caller) + mix(about) + depth) % SITES;
}

/* Returns the level of a site's sample, LEVEL_IDLE if it is left out: with the probability by which
 * the object would not have been sampled at the coarser level. */
static unsigned level_of_site(unsigned level, unsigned site, size_t size)
{
	unsigned coarser = level + sites[site].coarsening;
	double uniform;

	if (coarser == level || level == LEVEL_EVERY)
		return level;
	uniform = (double)(next_random() >> 11) / (1ull << 53);
	return uniform * weight_of(size, coarser) < weight_of(size, level) ? coarser : LEVEL_IDLE;
}

static void count_death(unsigned site)
{
	if (sites[site].deaths < REVIEW)
		sites[site].deaths++;
}

/* Counts a sample, and reviews the site's level. What threads lose of each other's counts changes
 * how many objects are sampled, and no estimate. */
static void count_sample(unsigned site)
{
	volatile struct site *s = &sites[site];

	if (++s->samples < REVIEW)
		return;
	if (s->deaths >= MANY_DEATHS && s->coarsening < MAX_COARSENING)
		s->coarsening++;
	else if (s->deaths < FEW_DEATHS)
		s->coarsening = 0;
	s->samples = s->deaths = 0;
}
