/* Leaks objects of one size beside ten million pairs of malloc and free a second:
 *
 *     paced_leak PACE SIZE RATE
 *
 * keep_object() leaks RATE bytes a second. PACE is its pace: "clock", or "work": one object in so
 * many pairs, so that a program that is slowed for a moment leaks less. That number follows the
 * pairs made in the last ten seconds, for a busy machine has less time for them.
 *
 * It prints "ready". For each line with a number it goes on for so many seconds and prints two
 * lines, the second
 * "done":
 *
 *     rounds NUMBER seconds WALL cpu CPU leaked BYTES
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PAIRS_PER_SECOND 10e6
#define PACE_SECONDS 10
#define FIRST_PACE_SECONDS 1
#define BATCH 100 /* pairs between two looks at the clock */
#define PAIR_BYTES 200
#define NS 1e-9
#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory") /* the compiler must not remove the pair */

static void **last;
static long kept; /* bytes */
static int seed;

static double now_of(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * NS;
}

static __attribute__((noinline)) void make_pairs(void)
{
	for (int i = 0; i < BATCH; i++) {
		void *p = malloc(PAIR_BYTES);

		KEEP(p);
		free(p);
	}
}

/* The contents of objects differ. */
static __attribute__((noinline)) void keep_object(size_t size)
{
	void **object = malloc(size); /* LEAK */

	memset(object, ++seed, size);
	*object = last;
	last = object;
	kept += size;
}

/* Computes for as long as the pairs of a batch leave of its time, in work that can be counted: the clock must not pace
 * a program that is to be slowed down. */
static void compute(long turns)
{
	for (volatile long i = 0; i < turns; i++)
		;
}

static double cpu_of_batches(long batches, long turns)
{
	double began = now_of(CLOCK_THREAD_CPUTIME_ID);

	for (long i = 0; i < batches; i++) {
		make_pairs();
		compute(turns);
	}
	return (now_of(CLOCK_THREAD_CPUTIME_ID) - began) / batches;
}

/* Returns how many turns of compute() bring a batch to its time. */
static long calibrated_turns(void)
{
	const long batches = 20000, turns = 1000;
	double pairs = cpu_of_batches(batches, 0);
	double turn = (cpu_of_batches(batches, turns) - pairs) / turns;
	double rest = BATCH / PAIRS_PER_SECOND - pairs;

	return rest > 0 ? rest / turn : 0;
}

static void stretch(int by_clock, size_t size, double rate, long turns, double seconds)
{
	double began = now_of(CLOCK_MONOTONIC), spent = now_of(CLOCK_PROCESS_CPUTIME_ID), passed;
	double by_work = 0, per_pair = rate / PAIRS_PER_SECOND, paced = 0; /* bytes, bytes, seconds */
	long rounds = 0, before = kept, paced_rounds = 0;

	do {
		make_pairs();
		compute(turns);
		rounds += BATCH;
		by_work += BATCH * per_pair;

		passed = now_of(CLOCK_MONOTONIC) - began;
		while (kept - before < (by_clock ? passed * rate : by_work))
			keep_object(size);

		if (passed - paced > (paced ? PACE_SECONDS : FIRST_PACE_SECONDS)) {
			per_pair = rate * (passed - paced) / (rounds - paced_rounds);
			paced = passed;
			paced_rounds = rounds;
		}
	} while (passed < seconds);
	spent = now_of(CLOCK_PROCESS_CPUTIME_ID) - spent;
	printf("rounds %ld seconds %.6f cpu %.6f leaked %ld\n", rounds, passed, spent, kept - before);
}

int main(int argc, char **argv)
{
	char line[64];
	long turns;

	if (argc < 4) {
		fprintf(stderr, "usage: %s PACE SIZE RATE\n", argv[0]);
		return 2;
	}
	turns = calibrated_turns();

	setvbuf(stdout, NULL, _IOLBF, 0);
	for (puts("ready"); fgets(line, sizeof(line), stdin); puts("done"))
		stretch(strcmp(argv[1], "clock") == 0, atol(argv[2]), atof(argv[3]), turns, atof(line));
	return 0;
}
