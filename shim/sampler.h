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
	uint32_t level;   /* of the usual interval when the distance was drawn */
	uint32_t drawn;   /* at which it was drawn: finer where sites are learned */
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

/* A fork must not make its parent's draws: each thread of a tree has a seed of its own. */
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

/* A site allocates objects of about one size, by one call, at one depth of the stack; some share a
 * place in the array. Most sites make temporaries. These would take most of the samples, and show
 * nothing of the kept objects. So a site that keeps one in 4^n of its objects is sampled n levels
 * more coarsely: the error of a sum of kept objects is then least for the samples that are taken
 * (Neyman's allocation). The level sets the weight, so that sums stay right. */
enum { SITES = 1 << SITE_BITS, MAX_COARSENING = 6, FIRST_COARSENING = 3 /* levels */ };

/* A site is reviewed after so many objects. The average reaches over some REVIEWS of them. */
enum { REVIEW = 32, REVIEWS = 8 };

static struct site {
	uint8_t objects, deaths; /* since the last review */
	uint8_t coarsening;      /* levels */
	int16_t kept;            /* of the last REVIEWS * REVIEW objects, the older the less */
} sites[SITES];

static unsigned site_of(size_t size, const void *caller, const void *frame)
{
	uint64_t depth = (uintptr_t)frame - (uintptr_t)&thread;
	size_t about = size & ~0ull << (61 - __builtin_clzll(size | 7)); /* its first three bits */

	return mix(mix((uintptr_t)caller) + mix(about) + depth) % SITES;
}

/* Counts an object of a site, and reviews the site's level. */
static void count_object(unsigned site)
{
	struct site *s = &sites[site];
	int coarsening = 0, most = s->coarsening + 1, kept;

	if (__atomic_add_fetch(&s->objects, 1, __ATOMIC_RELAXED) != REVIEW)
		return;
	if (most < FIRST_COARSENING)
		most = FIRST_COARSENING;
	kept = s->kept * (REVIEWS - 1) / REVIEWS + REVIEW -
	       __atomic_exchange_n(&s->deaths, 0, __ATOMIC_RELAXED);
	while (coarsening < MAX_COARSENING && coarsening < most &&
	       kept * (4 << 2 * coarsening) <= REVIEWS * REVIEW)
		coarsening++;
	s->kept = kept;
	s->coarsening = coarsening;
	__atomic_sub_fetch(&s->objects, REVIEW, __ATOMIC_RELAXED);
}

static void count_death(unsigned site)
{
	uint8_t *deaths = &sites[site].deaths;

	if (__atomic_load_n(deaths, __ATOMIC_RELAXED) < 2 * REVIEW)
		__atomic_add_fetch(deaths, 1, __ATOMIC_RELAXED);
}

/* Objects that are drawn and not reported are shadows: they show how long the objects of a site
 * live, and cost little. So as long as there is credit, objects are drawn at a finer level than
 * they are reported. Each reported object that dies gives credit, for there is something to learn.
 * A shadow may be replaced by another, after a second or more: an object that has not died by then
 * counts as kept. */
enum { SHADOWS = 1 << 10, REPLACE_ONE_IN = 16 };
enum { SHADOW_LEVELS = 3, MAX_CREDIT = 1 << 14, CREDIT_OF_DEATH = 16 };

static uint64_t shadows[SHADOWS]; /* object's address, site */
static volatile int32_t shadow_credit = MAX_CREDIT;

static uint64_t shadow_of(const void *object, unsigned site)
{
	return (uintptr_t)object << SITE_BITS | site;
}

static uint64_t *place_of_shadow(const void *object)
{
	return &shadows[hash_of(object) % SHADOWS];
}

static void add_shadow(const void *object, unsigned site)
{
	uint64_t *place = place_of_shadow(object), old;

	if (shadow_credit > 0)
		shadow_credit--;
	if (__atomic_load_n(place, __ATOMIC_RELAXED) && next_random() % REPLACE_ONE_IN)
		return;
	add(filter_of(object), object, 1);
	old = __atomic_exchange_n(place, shadow_of(object, site), __ATOMIC_RELAXED);
	if (old) {
		object = (void *)(old >> SITE_BITS);
		add(filter_of(object), object, -1);
	}
	count_object(site);
}

/* Returns whether an object that dies is a shadow. */
static int forget_shadow(const void *object)
{
	uint64_t *place = place_of_shadow(object);
	uint64_t shadow = __atomic_load_n(place, __ATOMIC_RELAXED);
	unsigned site = shadow % SITES;

	if (!object || shadow != shadow_of(object, site) ||
	    !__atomic_compare_exchange_n(place, &shadow, 0, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return 0;
	add(filter_of(object), object, -1);
	count_death(site);
	return 1;
}

static void count_reported_death(unsigned site)
{
	count_death(site);
	if (shadow_credit < MAX_CREDIT)
		shadow_credit += CREDIT_OF_DEATH;
}

/* Draws the distance to a thread's next object. */
static uint64_t draw(unsigned level)
{
	int finer = level > LEVEL_EVERY + SHADOW_LEVELS && shadow_credit > 0;

	thread.level = level;
	thread.drawn = finer ? level - SHADOW_LEVELS : level;
	return draw_distance(thread.drawn);
}

/* Counts an allocation of the slow path. Returns the level at which it is drawn, LEVEL_IDLE for not
 * at all. A draw holds until its end, so that a change of the level leaves every estimate as it
 * was. */
static unsigned sampling_level(size_t size)
{
	unsigned now = level_now(), sampled_at;
	uint64_t distance = thread.countdown + thread.rest;

	if (thread.level == LEVEL_IDLE)
		distance = draw(now);

	sampled_at = size >= distance ? thread.drawn : LEVEL_IDLE;
	if (size >= distance || now != thread.level)
		distance = draw(now);
	else
		distance -= size;

	thread.countdown = distance < max_countdown ? distance : max_countdown;
	thread.rest = distance - thread.countdown;
	return now ? sampled_at : LEVEL_IDLE;
}

/* Returns the level of an object that was drawn at a level, LEVEL_IDLE if it is not reported: with
 * the probability by which the object would not have been drawn at the level of its site. */
static unsigned level_of_site(unsigned drawn, unsigned site, size_t size)
{
	unsigned level = thread.level + sites[site].coarsening;
	double uniform;

	if (level <= drawn || drawn == LEVEL_EVERY)
		return drawn;
	uniform = (double)(next_random() >> 11) / (1ull << 53);
	return uniform * weight_of(size, level) < weight_of(size, drawn) ? level : LEVEL_IDLE;
}
