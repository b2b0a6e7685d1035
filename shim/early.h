/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for allocations while the next allocator is looked up: a program may have a
 * dl_iterate_phdr of its own, and the first call of it may allocate. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "table.h"

static struct {
	size_t used;
	char memory[4096] __attribute__((aligned(16)));
} early;

static char *early_end(void)
{
	return early.memory + sizeof(early.memory);
}

static int is_early(const void *object)
{
	return (uintptr_t)object - (uintptr_t)early.memory < sizeof(early.memory);
}

/* Returns zeroed memory, or NULL. The filter has it, so that free takes the slow path. */
static void *early_object(size_t size)
{
	void *object = early.memory + early.used;

	if (size >= sizeof(early.memory) || early.used + size + 16 > sizeof(early.memory))
		return NULL;
	early.used += (size + 16) & -(size_t)16;
	*filter_of(object) = 255;
	return object;
}

static void *early_objects(size_t n, size_t size)
{
	size_t bytes;

	return __builtin_mul_overflow(n, size, &bytes) ? NULL : early_object(bytes);
}
