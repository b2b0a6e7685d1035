/* SPDX-License-Identifier: Apache-2.0 */
/* The sampled objects that are alive, so that their frees are seen. No lock: a slot is taken and
 * cleared by one compare-and-swap each, and only who has the object does either. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "system.h"

enum { SITE_BITS = 11 };

struct sample {
	uint64_t size : 47, site : SITE_BITS, level : 6; /* level 0: no sample */
};

/* The few samples of a usual interval touch the near buckets alone. */
enum { BUCKET_SLOTS = 16, NEAR_BUCKETS = 1 << 12, FAR_BUCKETS = 1 << 17 };

struct bucket {
	void *objects[BUCKET_SLOTS];
	struct sample samples[BUCKET_SLOTS];
};

/* Data that a process shares with its forks and their forks. */
struct tree {
	uint64_t processes, seed;
};

/* Mapped at the start: a sample makes no system call, which a filter of the program may forbid. */
static struct shared {
	uint64_t process; /* its number in the tree; 0 in a child that has not sampled yet */
	char page[65536 - sizeof(uint64_t)];
	struct bucket near[NEAR_BUCKETS];
	struct bucket far[FAR_BUCKETS];
	uint8_t wide_filter[1 << 17]; /* asked where the small one may have an object */
	struct tree *tree;
} * shared;

/* Without the memory nothing is sampled. */
static void map_shared(void)
{
	struct tree *tree = map_memory(sizeof(*tree), MAP_SHARED);
	struct shared *mapped = map_memory(sizeof(*shared), MAP_PRIVATE);

	if (!tree || !mapped)
		return;
	wipe_on_fork(mapped, sizeof(mapped->process) + sizeof(mapped->page));
	tree->seed = entropy();
	mapped->process = tree->processes = 1;
	mapped->tree = tree;
	shared = mapped;
}

/* splitmix64: https://prng.di.unimi.it/splitmix64.c */
static uint64_t mix(uint64_t z)
{
	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
	z = (z ^ z >> 27) * 0x94d049bb133111eb;
	return z ^ z >> 31;
}

static uint64_t hash_of(const void *object)
{
	return mix((uintptr_t)object);
}

/* A place of a filter has the number of its objects in the high bits, and below it the XOR of their
 * tags: of a single object its tag. A full number stays. */
enum { TAG_BITS = 4, TAGS = 1 << TAG_BITS, MAX_COUNT = 255 / TAGS };

/* The samples and shadows, so that other frees are let pass. It is small, and objects near each
 * other have places near each other: every free reads it, from a core's first cache. */
enum { FILTER_BITS = 14 };
static uint8_t filter[1 << FILTER_BITS];

/* The place is the address from bit 4 on, plus one and a half times its number of 64 KiB: every
 * free works it out, and no code is shorter than a multiplication and a shift. */
static uint8_t *filter_of(const void *object)
{
	enum { UNIT = 1 << (32 - FILTER_BITS - 4), PAGES = 3 << (31 - FILTER_BITS - 16) };

	return &filter[(uint32_t)(uintptr_t)object * (UNIT + PAGES) >> (32 - FILTER_BITS)];
}

static uint8_t *wide_filter_of(const void *object)
{
	return &shared->wide_filter[hash_of(object) % sizeof(shared->wide_filter)];
}

static uint8_t tag_of(const void *object)
{
	return hash_of(object) >> (64 - TAG_BITS);
}

/* Returns whether an object can be in a place. One that is alone there is known by its tag. */
static int may_have(const uint8_t *place, const void *object)
{
	uint8_t found = __atomic_load_n(place, __ATOMIC_RELAXED);

	return found == TAGS + tag_of(object) || found >= 2 * TAGS;
}

/* Adds an object to a place, or takes it away: change is 1 or -1. */
static void add(uint8_t *place, const void *object, int change)
{
	uint8_t old = __atomic_load_n(place, __ATOMIC_RELAXED), tag = tag_of(object);

	while (old / TAGS != MAX_COUNT &&
	       !__atomic_compare_exchange_n(place, &old, (old + change * TAGS) ^ tag, 0,
					    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static void count_in_filters(const void *object, int change)
{
	add(filter_of(object), object, change);
	add(wide_filter_of(object), object, change);
}

/* Returns the slot of an object, or -1. */
static int find(const struct bucket *bucket, const void *object)
{
	for (int i = 0; i < BUCKET_SLOTS; i++)
		if (__atomic_load_n(&bucket->objects[i], __ATOMIC_RELAXED) == object)
			return i;
	return -1;
}

/* Takes a free slot for an object. Returns the slot, or -1. */
static int take_slot(struct bucket *bucket, void *object)
{
	for (int i = 0; i < BUCKET_SLOTS; i++) {
		void *none = NULL;

		if (!bucket->objects[i] &&
		    __atomic_compare_exchange_n(&bucket->objects[i], &none, object, 0,
						__ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return i;
	}
	return -1;
}

/* Returns the sample of an object, which the table then no longer has. */
static struct sample forget(void *object)
{
	struct sample sample = { 0, 0, 0 };
	uint64_t hash = hash_of(object);
	struct bucket *bucket;
	int slot;

	if (!object || !shared || !may_have(wide_filter_of(object), object))
		return sample;
	bucket = &shared->near[hash % NEAR_BUCKETS];
	slot = find(bucket, object);
	if (slot < 0) {
		bucket = &shared->far[hash % FAR_BUCKETS];
		slot = find(bucket, object);
	}
	if (slot < 0)
		return sample;

	sample = bucket->samples[slot];
	__atomic_store_n(&bucket->objects[slot], NULL, __ATOMIC_RELEASE);
	count_in_filters(object, -1);
	return sample;
}

/* Returns whether there was a slot: without one the object's free could not be seen. */
static int remember(void *object, struct sample sample)
{
	uint64_t hash = hash_of(object);
	struct bucket *bucket = &shared->near[hash % NEAR_BUCKETS];
	int slot;

	forget(object); /* an older one, whose free was not seen */
	slot = take_slot(bucket, object);
	if (slot < 0) {
		bucket = &shared->far[hash % FAR_BUCKETS];
		slot = take_slot(bucket, object);
	}
	if (slot < 0)
		return 0;

	bucket->samples[slot] = sample;
	count_in_filters(object, 1);
	return 1;
}
