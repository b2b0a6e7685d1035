/* A library that keeps objects for a Python program, and hides or forgets others. */
#include <stdint.h>
#include <stdlib.h>

enum { capacity = 100000 };

void *kept[capacity]; /* not static: the compiler would see that nobody reads it */
static int length;

void keep(void *object)
{
	kept[length++] = object;
}

static uint64_t hidden; /* the address of an array, all bits inverted */

void hide(void *object)
{
	static int count;
	void **array = (void **)~hidden;
	if (!hidden)
		hidden = ~(uint64_t)(array = calloc(capacity, sizeof *array));

	array[count++] = object;
}

int pass_down(void *object, int depth)
{
	void *volatile copies[8];
	for (int i = 0; i < 8; i++)
		copies[i] = object;

	return depth ? pass_down(object, depth - 1) + (copies[depth % 8] != NULL) : 0;
}
