/*
 * A program whose list of libraries, as the dynamic linker publishes it for debuggers, has no end:
 * the last entry points to the first.
 *
 * It prints "ready" and lives until it is killed.
 */
#include <link.h>
#include <stdio.h>
#include <unistd.h>

int main(void)
{
	struct link_map *last = _r_debug.r_map;

	while (last->l_next)
		last = last->l_next;
	last->l_next = _r_debug.r_map;

	puts("ready");
	fflush(stdout);
	for (;;)
		pause();
}
