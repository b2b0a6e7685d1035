//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */
/* A library to be preloaded: it samples the allocations of a program and reports them by probes,
 * for allocscope or any other reader of otel_memory probes. docs/internals/shim.md has the
 * contract. It calls nothing of the C library but the allocator's functions, takes no lock, opens
 * no file, and leaves pointers, results and errno as they are. */
#include <stddef.h>
#include <stdint.h>
#include "functions.h"
#include "probes.h"
#include "sampler.h"
#include "system.h"
#include "table.h"

#define COLD __attribute__((cold, noinline, not_tail_called))

/* Says that a program has begun, or that a fork of one takes its first sample. */
static void report_start(void)
{
	if (allocscope_start_semaphore)
		allocscope_start();
}

/* Waits until the tracer knows the program: it then changes the semaphore. A program that is
 * forbidden to wait goes on. */
static void wait_for_tracer(void)
{
	enum { LONGEST = 500 }; /* ms */
	uint16_t at_start = allocscope_hold_semaphore;

	if (!at_start)
		return;
	for (int i = 0; i < LONGEST && allocscope_hold_semaphore == at_start; i++)
		if (!sleep_1_ms())
			return;
}

/* Comes with the first call, or before main: before there is a second thread. */
static __attribute__((constructor)) void begin(void)
{
	static int has_begun;

	if (has_begun)
		return;
	has_begun = 1;

	look_up();
	if (!dl_iterate_phdr)
		return; /* the program has no C library, and so no allocator */
	report_start();
	wait_for_tracer();
	if (!shadowed)
		map_shared();
}

/* Calls the next allocator, which may call ours: those calls do not count. */
#define NEXT(call)                                                                                 \
	({                                                                                         \
		size_t countdown = thread.countdown;                                               \
		thread.depth++;                                                                    \
		__typeof__(next.call) result = next.call;                                          \
		thread.depth--;                                                                    \
		thread.countdown = countdown;                                                      \
		result;                                                                            \
	})

/* No allocator has so much: the call fails, and the old object of a realloc stays where it is. */
#define IMPOSSIBLE_SIZE ((size_t)1 << 47)

/* Counts an object that was allocated, or the failure of doing so. */
static COLD void sample(void *object, size_t size, const void *caller)
{
	unsigned level, site;

	if (thread.depth)
		return;
	thread.slow_calls++;
	if (shared && is_new_fork())
		report_start();
	level = sampling_level(size);
	if (!level || !object)
		return;

	site = site_of(size, caller, __builtin_frame_address(0));
	level = level_of_site(level, site, size);
	forget_shadow(object); /* an older one, whose free was not seen */
	if (!level) {
		add_shadow(object, site);
	} else if (remember(object, (struct sample){ size, site, level })) {
		otel_memory_alloc(object, size, weight_of(size, level));
		count_object(site);
	}
}

static inline void count(void *object, size_t size)
{
	if (LIKELY(size < thread.countdown))
		thread.countdown -= size;
	else
		sample(object, size, __builtin_return_address(0));
}

static COLD struct sample release(void *object)
{
	struct sample sample = { 0, 0, 0 };

	if (!may_have(filter_of(object), object) || forget_shadow(object))
		return sample;
	sample = forget(object);
	if (sample.level) {
		otel_memory_free(object);
		count_reported_death(sample.site);
	}
	return sample;
}

/* Sees to an object that is about to be freed, before another thread can get its address. */
static inline struct sample leave(void *object)
{
	if (LIKELY(!*filter_of(object)))
		return (struct sample){ 0, 0, 0 };
	return release(object);
}

/* After a realloc: the old object comes back if it has failed. */
static inline void count_resized(void *object, size_t size, void *old, struct sample sample)
{
	if (LIKELY(object || !size))
		count(object, size);
	else if (sample.level && remember(old, sample))
		otel_memory_alloc(old, sample.size, weight_of(sample.size, sample.level));
}

static __attribute__((noinline)) void *slow_malloc(size_t size)
{
	void *object = NEXT(malloc(size));

	sample(object, size, __builtin_return_address(0));
	return object;
}

/* Without a sample it is a jump: the next malloc calls none of its relatives. */
void *malloc(size_t size)
{
	if (!LIKELY(size < thread.countdown))
		return slow_malloc(size);
	thread.countdown -= size;
	return next.malloc(size);
}

void *calloc(size_t n, size_t size)
{
	void *object = NEXT(calloc(n, size));

	count(object, n * size);
	return object;
}

/* Moves an early object to where the next allocator has it. */
static void *move_early(void *old, size_t size)
{
	char *object = malloc(size), *from = old;
	size_t longest = early_end() - from;

	for (size_t i = 0; object && i < size && i < longest; i++)
		object[i] = from[i];
	return object;
}

void *realloc(void *old, size_t size)
{
	if (is_early(old))
		return move_early(old, size);
	if (size >= IMPOSSIBLE_SIZE)
		return next.realloc(old, size);

	struct sample sample = leave(old);
	void *object = NEXT(realloc(old, size));
	count_resized(object, size, old, sample);
	return object;
}

void *reallocarray(void *old, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes) || bytes >= IMPOSSIBLE_SIZE)
		return next.reallocarray(old, n, size);
	if (is_early(old))
		return move_early(old, bytes);

	struct sample sample = leave(old);
	void *object = NEXT(reallocarray(old, n, size));
	count_resized(object, bytes, old, sample);
	return object;
}

int posix_memalign(void **object, size_t alignment, size_t size)
{
	int error = NEXT(posix_memalign(object, alignment, size));

	if (!error)
		count(*object, size);
	return error;
}

void *aligned_alloc(size_t alignment, size_t size)
{
	void *object = NEXT(aligned_alloc(alignment, size));

	count(object, size);
	return object;
}

void *memalign(size_t alignment, size_t size)
{
	void *object = NEXT(memalign(alignment, size));

	count(object, size);
	return object;
}

void *valloc(size_t size)
{
	void *object = NEXT(valloc(size));

	count(object, size);
	return object;
}

void *pvalloc(size_t size)
{
	void *object = NEXT(pvalloc(size));

	count(object, size);
	return object;
}

static __attribute__((noinline)) void slow_free(void *object)
{
	release(object);
	if (!is_early(object))
		next.free(object);
}

void free(void *object)
{
	if (!LIKELY(!*filter_of(object)))
		slow_free(object);
	else
		next.free(object);
}

void cfree(void *object)
{
	leave(object);
	next.cfree(object);
}

void free_sized(void *object, size_t size)
{
	leave(object);
	next.free_sized(object, size);
}

void free_aligned_sized(void *object, size_t alignment, size_t size)
{
	leave(object);
	next.free_aligned_sized(object, alignment, size);
}

/* Operators that are not the allocator's own call our malloc and free. */
#define DEFINE_OPERATOR(result, name, parameters, arguments)                                       \
	result name parameters                                                                     \
	{                                                                                          \
		return LIKELY(!has_own_operators) ? next.name arguments : own_##name arguments;    \
	}

/* An operator of an allocator counts unless it has called our malloc, which has then counted. An
 * exception may pass: nothing is to be restored. */
#define DEFINE_NEW(result, name, parameters, arguments, otherwise)                                 \
	static __attribute__((noinline)) result own_##name parameters                              \
	{                                                                                          \
		size_t countdown = thread.countdown;                                               \
		uint32_t slow_calls = thread.slow_calls;                                           \
		void *object = next.name arguments;                                                \
                                                                                                   \
		if (thread.countdown == countdown && thread.slow_calls == slow_calls)              \
			count(object, size);                                                       \
		return object;                                                                     \
	}                                                                                          \
	DEFINE_OPERATOR(result, name, parameters, arguments)
NEW_OPERATORS(DEFINE_NEW)

#define DEFINE_DELETE(result, name, parameters, arguments, otherwise)                              \
	static __attribute__((noinline)) result own_##name parameters                              \
	{                                                                                          \
		leave(object);                                                                     \
		next.name arguments;                                                               \
	}                                                                                          \
	DEFINE_OPERATOR(result, name, parameters, arguments)
DELETE_OPERATORS(DEFINE_DELETE)
