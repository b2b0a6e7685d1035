//go:build ignore

/* SPDX-License-Identifier: Apache-2.0 */
/* A library to be preloaded: it samples the allocations of a program and reports them by probes,
 * for allocscope or any other reader of otel_memory probes. docs/internals/shim.md has the
 * contract. It calls nothing of the C library but the allocator's functions, takes no lock, opens
 * no file, and leaves pointers, results and errno as they are. */
#include <stddef.h>
#include <stdint.h>
#include "next.h"
#include "probes.h"
#include "sampler.h"
#include "system.h"
#include "table.h"

#define EXPORT __attribute__((visibility("default")))
#define COLD __attribute__((cold, noinline, not_tail_called))

/* The functions that ours replace: what they return, their name, parameters, arguments. */
#define FUNCTIONS(X)                                                                               \
	X(void *, malloc, (size_t size), (size))                                                   \
	X(void *, calloc, (size_t count, size_t size), (count, size))                              \
	X(void *, realloc, (void *old, size_t size), (old, size))                                  \
	X(void *, reallocarray, (void *old, size_t count, size_t size), (old, count, size))        \
	X(int, posix_memalign, (void **object, size_t alignment, size_t size),                     \
	  (object, alignment, size))                                                               \
	X(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size))               \
	X(void *, memalign, (size_t alignment, size_t size), (alignment, size))                    \
	X(void *, valloc, (size_t size), (size))                                                   \
	X(void *, pvalloc, (size_t size), (size))                                                  \
	X(void, free, (void *object), (object))                                                    \
	X(void, cfree, (void *object), (object))                                                   \
	X(void, free_sized, (void *object, size_t size), (object, size))                           \
	X(void, free_aligned_sized, (void *object, size_t alignment, size_t size),                 \
	  (object, alignment, size))

static void begin(void);

/* Until the first call of any of them, next has functions that look up the real ones. */
#define FIRST(result, name, parameters, arguments) static result first_##name parameters;
FUNCTIONS(FIRST)

#define SLOT(result, name, parameters, arguments) result(*name) parameters;
#define INITIAL(result, name, parameters, arguments) first_##name,
static struct {
	FUNCTIONS(SLOT)
} next = { FUNCTIONS(INITIAL) };

#define LOOK_UP(result, name, parameters, arguments)                                               \
	static result first_##name parameters                                                      \
	{                                                                                          \
		begin();                                                                           \
		return next.name arguments;                                                        \
	}
FUNCTIONS(LOOK_UP)

/* What is called while the functions are looked up, and in place of those that no library has:
 * allocations fail, and free does for its relatives, as C23 allows. */
static void *absent(void)
{
	return NULL;
}

static int absent_posix_memalign(void)
{
	enum { ENOMEM = 12 };

	return ENOMEM;
}

static void absent_free(void *object)
{
	if (next.free != absent_free)
		next.free(object);
}

#define absent_malloc absent
#define absent_calloc absent
#define absent_realloc absent
#define absent_reallocarray absent
#define absent_aligned_alloc absent
#define absent_memalign absent
#define absent_valloc absent
#define absent_pvalloc absent
#define absent_cfree absent_free
#define absent_free_sized absent_free
#define absent_free_aligned_sized absent_free

static const struct function {
	const char *name;
	void **slot, *absent;
} functions[] = {
#define ROW(result, name, parameters, arguments) { #name, (void **)&next.name, absent_##name },
	FUNCTIONS(ROW)
};
enum { FUNCTION_COUNT = sizeof(functions) / sizeof(functions[0]) };

/* Takes what is missing from an object, if it comes after ours. */
static int look_up_in(struct object *object, size_t size, void *data)
{
	struct symbols symbols = symbols_of(object);
	int *is_after = data;

	(void)size;
	if (has_address(object, (uint64_t)begin)) {
		*is_after = 1;
		return 0;
	}
	if (!*is_after) {
		shadowed |= find_function(&symbols, "free") != NULL;
		return 0;
	}

	for (const struct function *f = functions; f < functions + FUNCTION_COUNT; f++) {
		void *found = *f->slot == f->absent ? find_function(&symbols, f->name) : NULL;

		if (found)
			*f->slot = found;
	}
	return 0;
}

/* Says that a program has begun, and waits until the tracer knows it, half a second at most. */
static void report_start(void)
{
	const long patience_ms = 500;

	if (allocscope_start_semaphore)
		allocscope_start();
	if (!allocscope_hold_semaphore)
		return;
	for (long began = now_ms(); allocscope_hold_semaphore && now_ms() - began < patience_ms;)
		sleep_ms(1);
}

/* Comes with the first call, or before main: before there is a second thread. */
static __attribute__((constructor)) void begin(void)
{
	static int has_begun;
	int is_after = 0;

	if (has_begun)
		return;
	has_begun = 1;

	for (const struct function *f = functions; f < functions + FUNCTION_COUNT; f++)
		*f->slot = f->absent;
	dl_iterate_phdr(look_up_in, &is_after);
	report_start();
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
#define IMPOSSIBLE_SIZE ((size_t)1 << 56)

/* Counts an object that was allocated, or the failure of doing so. */
static COLD void sample(void *object, size_t size)
{
	unsigned level = thread.depth ? LEVEL_IDLE : sampling_level(size);

	if (level && object && remember(object, (struct sample){ size, level }))
		otel_memory_alloc(object, size, weight_of(size, level));
}

static inline void count(void *object, size_t size)
{
	if (LIKELY(size < thread.countdown))
		thread.countdown -= size;
	else
		sample(object, size);
}

static COLD struct sample release(void *object)
{
	struct sample sample = forget(object);

	if (sample.level)
		otel_memory_free(object);
	return sample;
}

/* Sees to an object that is about to be freed, before another thread can get its address. */
static inline struct sample leave(void *object)
{
	if (LIKELY(!*filter_of(object)))
		return (struct sample){ 0, 0 };
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

	sample(object, size);
	return object;
}

/* Without a sample it is a jump: the next malloc calls none of its relatives. */
EXPORT void *malloc(size_t size)
{
	if (!LIKELY(size < thread.countdown))
		return slow_malloc(size);
	thread.countdown -= size;
	return next.malloc(size);
}

EXPORT void *calloc(size_t n, size_t size)
{
	void *object = NEXT(calloc(n, size));

	count(object, n * size);
	return object;
}

EXPORT void *realloc(void *old, size_t size)
{
	if (size >= IMPOSSIBLE_SIZE)
		return next.realloc(old, size);

	struct sample sample = leave(old);
	void *object = NEXT(realloc(old, size));
	count_resized(object, size, old, sample);
	return object;
}

EXPORT void *reallocarray(void *old, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes) || bytes >= IMPOSSIBLE_SIZE)
		return next.reallocarray(old, n, size);

	struct sample sample = leave(old);
	void *object = NEXT(reallocarray(old, n, size));
	count_resized(object, bytes, old, sample);
	return object;
}

EXPORT int posix_memalign(void **object, size_t alignment, size_t size)
{
	int error = NEXT(posix_memalign(object, alignment, size));

	if (!error)
		count(*object, size);
	return error;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
	void *object = NEXT(aligned_alloc(alignment, size));

	count(object, size);
	return object;
}

EXPORT void *memalign(size_t alignment, size_t size)
{
	void *object = NEXT(memalign(alignment, size));

	count(object, size);
	return object;
}

EXPORT void *valloc(size_t size)
{
	void *object = NEXT(valloc(size));

	count(object, size);
	return object;
}

EXPORT void *pvalloc(size_t size)
{
	void *object = NEXT(pvalloc(size));

	count(object, size);
	return object;
}

static __attribute__((noinline)) void slow_free(void *object)
{
	release(object);
	next.free(object);
}

EXPORT void free(void *object)
{
	if (!LIKELY(!*filter_of(object)))
		slow_free(object);
	else
		next.free(object);
}

EXPORT void cfree(void *object)
{
	leave(object);
	next.cfree(object);
}

EXPORT void free_sized(void *object, size_t size)
{
	leave(object);
	next.free_sized(object, size);
}

EXPORT void free_aligned_sized(void *object, size_t alignment, size_t size)
{
	leave(object);
	next.free_aligned_sized(object, alignment, size);
}
