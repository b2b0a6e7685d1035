/* Allocates once for each line of its input, from so many calls deep, and prints the return
 * addresses that glibc finds there, leaf first: of the leaf function, its callers, and the caller
 * of main.
 *
 * usage: deep CALLS */
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>

#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory")
#define MAX_FRAMES 4096

static void *frames[MAX_FRAMES];
static int found;

__attribute__((noinline)) static void leaf(void)
{
	found = backtrace(frames, MAX_FRAMES);
	KEEP(malloc(100));
}

__attribute__((noinline)) static void descend(int calls)
{
	if (calls > 0)
		descend(calls - 1);
	else
		leaf();
	KEEP(&calls);
}

int main(int argc, char **argv)
{
	char line[64];

	backtrace(frames, 1); /* loads libgcc */
	puts("ready");
	fflush(stdout);
	while (argc > 1 && fgets(line, sizeof(line), stdin)) {
		descend(atoi(argv[1]));
		for (int i = 0; i < found; i++)
			printf("%p\n", frames[i]);
		puts("done");
		fflush(stdout);
	}
}
