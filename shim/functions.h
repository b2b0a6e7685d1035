/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that ours replace, and how the next ones are found: functions of the C library, or
 * of an allocator that is linked or preloaded. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "early.h"
#include "next.h"
#include "sampler.h"

#define EXPORT __attribute__((visibility("default")))

enum { ENOMEM = 12 };

/* A function's result, name, parameters and arguments, and its substitute where no library has it,
 * or while they are looked up: early memory, a failure, or free, as C23 allows for its
 * relatives. */
#define C_FUNCTIONS(X)                                                                             \
	X(void *, malloc, (size_t size), (size), early_object(size))                               \
	X(void *, calloc, (size_t n, size_t size), (n, size), early_objects(n, size))              \
	X(void *, realloc, (void *old, size_t size), (old, size), NULL)                            \
	X(void *, reallocarray, (void *old, size_t n, size_t size), (old, n, size), NULL)          \
	X(int, posix_memalign, (void **object, size_t alignment, size_t size),                     \
	  (object, alignment, size), ENOMEM)                                                       \
	X(void *, aligned_alloc, (size_t alignment, size_t size), (alignment, size), NULL)         \
	X(void *, memalign, (size_t alignment, size_t size), (alignment, size), NULL)              \
	X(void *, valloc, (size_t size), (size), NULL)                                             \
	X(void *, pvalloc, (size_t size), (size), NULL)                                            \
	X(void, free, (void *object), (object), (void)0)                                           \
	X(void, cfree, (void *object), (object), next.free(object))                                \
	X(void, free_sized, (void *object, size_t size), (object, size), next.free(object))        \
	X(void, free_aligned_sized, (void *object, size_t alignment, size_t size),                 \
	  (object, alignment, size), next.free(object))

/* operator new and new[] by their names in the Itanium C++ ABI. Where no library of the start has
 * them, they are malloc's, as in libstdc++; its own is found and called when malloc fails, to
 * throw. It may come and go with a library that the program loads later, so that none is kept. */
#define NEW_OPERATORS(X)                                                                           \
	NEW_PAIR(X, m, (size_t size), (size), malloc(size + !size))                                \
	NEW_PAIR(X, mRKSt9nothrow_t, (size_t size, const void *nothrow), (size, nothrow),          \
		 malloc(size + !size))                                                             \
	NEW_PAIR(X, mSt11align_val_t, (size_t size, size_t alignment), (size, alignment),          \
		 aligned(size, alignment))                                                         \
	NEW_PAIR(X, mSt11align_val_tRKSt9nothrow_t,                                                \
		 (size_t size, size_t alignment, const void *nothrow), (size, alignment, nothrow), \
		 aligned(size, alignment))
#define NEW_PAIR(X, suffix, parameters, arguments, object)                                         \
	X(void *, _Znw##suffix, parameters, arguments, object ?: LATER(_Znw##suffix, arguments))   \
	X(void *, _Zna##suffix, parameters, arguments, object ?: LATER(_Zna##suffix, arguments))
#define LATER(name, arguments) ((__typeof__(next.name))function_of_later(#name)) arguments

/* operator delete and delete[]. */
#define DELETE_OPERATORS(X)                                                                        \
	DELETE_PAIR(X, , (void *object), (object))                                                 \
	DELETE_PAIR(X, m, (void *object, size_t size), (object, size))                             \
	DELETE_PAIR(X, RKSt9nothrow_t, (void *object, const void *nothrow), (object, nothrow))     \
	DELETE_PAIR(X, St11align_val_t, (void *object, size_t alignment), (object, alignment))     \
	DELETE_PAIR(X, mSt11align_val_t, (void *object, size_t size, size_t alignment),            \
		    (object, size, alignment))                                                     \
	DELETE_PAIR(X, St11align_val_tRKSt9nothrow_t,                                              \
		    (void *object, size_t alignment, const void *nothrow),                         \
		    (object, alignment, nothrow))
#define DELETE_PAIR(X, suffix, parameters, arguments)                                              \
	X(void, _ZdlPv##suffix, parameters, arguments, free(object))                               \
	X(void, _ZdaPv##suffix, parameters, arguments, free(object))

#define FUNCTIONS(X) C_FUNCTIONS(X) NEW_OPERATORS(X) DELETE_OPERATORS(X)

#define DECLARE(result, name, parameters, arguments, otherwise)                                    \
	EXPORT result name parameters;                                                             \
	static result first_##name parameters;
FUNCTIONS(DECLARE)

/* Until the first call of any of them, they are functions that look up all. */
#define SLOT(result, name, parameters, arguments, otherwise) result(*name) parameters;
#define INITIAL(result, name, parameters, arguments, otherwise) first_##name,
static struct {
	FUNCTIONS(SLOT)
} next = { FUNCTIONS(INITIAL) };

static void begin(void);

#define LOOK_UP(result, name, parameters, arguments, otherwise)                                    \
	static result first_##name parameters                                                      \
	{                                                                                          \
		begin();                                                                           \
		return name arguments;                                                             \
	}
FUNCTIONS(LOOK_UP)

static void *function_of_later(const char *name);

static void *aligned(size_t size, size_t alignment)
{
	if (alignment < sizeof(void *))
		alignment = sizeof(void *);
	return aligned_alloc(alignment, (size + !size + alignment - 1) & -alignment);
}

#define ABSENT(result, name, parameters, arguments, otherwise)                                     \
	static result absent_##name parameters                                                     \
	{                                                                                          \
		return otherwise;                                                                  \
	}
FUNCTIONS(ABSENT)

static const struct function {
	const char *name;
	void **slot, *absent;
} functions[] = {
#define ROW(result, name, parameters, arguments, otherwise)                                        \
	{ #name, (void **)&next.name, absent_##name },
	FUNCTIONS(ROW)
};
enum { FUNCTION_COUNT = sizeof(functions) / sizeof(functions[0]) };

/* The program's own malloc comes before ours, so that we would see a part of the calls alone. */
static int shadowed;

/* The library that has malloc has operators of its own, which need not call malloc. */
static int has_own_operators;

/* A walk over the program and its libraries, in the order in which symbols are looked up. */
struct walk {
	int objects, is_after_ours;
	uint64_t malloc_base, operator_base;
	const char *wanted; /* by function_of_later */
	void *found;
};

/* Returns whether an object comes after ours. */
static int comes_after(struct walk *walk, const struct object *object)
{
	int is_after = walk->is_after_ours;

	walk->objects++;
	walk->is_after_ours |= has_address(object, (uint64_t)begin);
	return is_after;
}

/* Takes the missing functions from an object. */
static int look_up_in(struct object *object, size_t size, void *data)
{
	struct symbols symbols = symbols_of(object);
	struct walk *walk = data;

	if (!comes_after(walk, object)) {
		shadowed |= walk->objects == 1 && find_function(&symbols, "free");
		return 0;
	}

	for (const struct function *f = functions; f < functions + FUNCTION_COUNT; f++) {
		void *found = *f->slot == f->absent ? find_function(&symbols, f->name) : NULL;

		if (!found)
			continue;
		*f->slot = found;
		if (f->slot == (void **)&next.malloc)
			walk->malloc_base = object->base;
		else if (f->slot == (void **)&next._Znwm)
			walk->operator_base = object->base;
	}
	return 0;
}

static void look_up(void)
{
	struct walk walk = { 0 };

	for (const struct function *f = functions; f < functions + FUNCTION_COUNT; f++)
		*f->slot = f->absent;
	if (dl_iterate_phdr)
		dl_iterate_phdr(look_up_in, &walk);
	has_own_operators = walk.operator_base && walk.operator_base == walk.malloc_base;
}

static int look_for_wanted(struct object *object, size_t size, void *data)
{
	struct symbols symbols = symbols_of(object);
	struct walk *walk = data;

	if (comes_after(walk, object))
		walk->found = find_function(&symbols, walk->wanted);
	return walk->found != NULL;
}

static void *no_object(void)
{
	return NULL;
}

/* Returns a function of a library that the program may have loaded meanwhile. */
static void *function_of_later(const char *name)
{
	struct walk walk = { .wanted = name };

	if (dl_iterate_phdr)
		dl_iterate_phdr(look_for_wanted, &walk);
	return walk.found ?: (void *)no_object;
}
