/* A main heap that grows and shrinks. It prints "ready", and carries out one order a line, then prints "done".
 *
 *     usual          usual() allocates USUAL bytes and writes to them
 *     rise           first() and second() allocate RISE bytes each and fill() writes to both, in
 * another thread
 *     fall           frees their blocks
 */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OBJECT (64 << 10)
#define USUAL (16 << 20)
#define RISE (32 << 20)
#define OBJECTS (2 * RISE / OBJECT)

static char *objects[OBJECTS];

static __attribute__((noinline)) char *usual(void)
{
	return memset(malloc(USUAL), 1, USUAL);
}

/* Allocates the objects of one function. Before the last of them it pauses: of calls of brk that follow
 * each other fast the next one after a pause is reported, with the growth of all. */
static inline __attribute__((always_inline)) void allocate(int from, int to)
{
	for (int i = from; i < to; i++) {
		if (i >= to - 4)
			usleep(20 * 1000);
		objects[i] = malloc(OBJECT);
	}
}

static __attribute__((noinline)) void first(void)
{
	allocate(0, OBJECTS / 2);
}

/* Its stack is deeper than the stack of first(): calls of equal depth from one helper are one
 * site. */
static __attribute__((noinline)) void second(void)
{
	volatile char deeper[1000];

	deeper[0] = 0;
	allocate(OBJECTS / 2, OBJECTS);
}

static void *fill(void *unused)
{
	for (int i = 0; i < OBJECTS && objects[i]; i++)
		memset(objects[i], 1, OBJECT);
	return unused;
}

static void fill_in_thread(void)
{
	pthread_t filler;

	if (pthread_create(&filler, NULL, fill, NULL) || pthread_join(filler, NULL))
		exit(1);
}

int main(void)
{
	char line[64];
	char *kept = NULL;

	mallopt(M_MMAP_THRESHOLD, 32 << 20); /* all objects come from the heap */
	mallopt(M_TRIM_THRESHOLD, 1 << 20);
	fill_in_thread(); /* so that the C library's memory of threads lies below all else */
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "usual\n")) {
			kept = usual();
		} else if (!strcmp(line, "rise\n")) {
			first();
			second();
			fill_in_thread();
		} else if (!strcmp(line, "fall\n")) {
			for (int i = OBJECTS; i-- > 0;)
				free(objects[i]);
			memset(objects, 0, sizeof(objects));
		}
		puts("done");
		fflush(stdout);
	}
	free(kept);
	return 0;
}
