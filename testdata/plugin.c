/* A library that allocates from two functions deep; -DSIZE=n gives it code of its own. */
#include <stdlib.h>

#ifndef SIZE
#define SIZE 100
#endif

void *kept[1 << 16];
unsigned count;

__attribute__((noinline)) void *plugin_inner(size_t size)
{
	void *p = malloc(size);

	__asm__ volatile("" : : "r"(p) : "memory"); /* not a tail call */
	return p;
}

__attribute__((noinline)) void plugin_outer(void)
{
	kept[count++ % (1 << 16)] = plugin_inner(SIZE);
	__asm__ volatile("" : : : "memory");
}
