/* A loop that does nothing but allocate and free: each step makes PAIRS blocks of 16 to 512 bytes,
 * each of which takes the place of one of the live SLOTS, and keeps one block for ever, by one
 * line. It has the protocol of peer.py.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PAIRS 50000
#define SLOTS 20000
#define KEPT 3000  /* bytes */
#define WARM_UP 10 /* steps */
#define NS 1e-9
#define US 1e-6

static void *slots[SLOTS], **last;
static long planted; /* bytes */
static unsigned seed = 20240607;

static unsigned draw(void)
{
	seed = seed * 1664525 + 1013904223;
	return seed >> 8;
}

static __attribute__((noinline)) void remember_block(void)
{
	unsigned slot = draw() % SLOTS;

	free(slots[slot]);
	slots[slot] = malloc(16 + draw() % 497); /* CACHE */
}

static __attribute__((noinline)) void keep_block(void)
{
	void **block = malloc(KEPT); /* LEAK */

	memset(block, 1, KEPT);
	*block = last;
	last = block;
	planted += KEPT;
}

static void step(void)
{
	for (int i = 0; i < PAIRS; i++)
		remember_block();
	keep_block();
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * NS;
}

static double cpu(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * US;
}

static void stretch(double seconds)
{
	double began = now(), spent = cpu();
	long steps = 0;

	for (; now() < began + seconds; steps++)
		step();
	printf("steps %ld seconds %.6f cpu %.6f planted %ld\n", steps, now() - began, cpu() - spent, planted);
}

int main(void)
{
	char line[64];

	for (int i = 0; i < WARM_UP; i++)
		step();
	printf("ready %d planted %ld\n", getpid(), planted);
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin) && strcmp(line, "exit\n") != 0) {
		stretch(atof(line));
		fflush(stdout);
	}
	return 0;
}
