/* Leaks one object from each of 1 << DEPTH distinct stacks: DEPTH calls deep, each of them one of two functions. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef DEPTH
#define DEPTH 10
#endif
#ifndef PAUSE_US
#define PAUSE_US 200
#endif
#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory")

__attribute__((noinline)) static void descend(unsigned path, int depth);

__attribute__((noinline)) static void left(unsigned path, int depth)
{
	descend(path, depth);
	KEEP(&path);
}

__attribute__((noinline)) static void right(unsigned path, int depth)
{
	descend(path, depth);
	KEEP(&path);
}

static void descend(unsigned path, int depth)
{
	if (depth == DEPTH)
		KEEP(malloc(100));
	else if (path >> depth & 1)
		right(path, depth + 1);
	else
		left(path, depth + 1);
	KEEP(&path);
}

int main(void)
{
	char line[64];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (unsigned path = 0; path < 1 << DEPTH; path++) {
			descend(path, 0);
			if (PAUSE_US)
				usleep(PAUSE_US);
		}
		puts("done");
		fflush(stdout);
	}
}
