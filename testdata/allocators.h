/* Code that the programs that call every function of an allocator share. After "go" such a program
 * prints one line per function that still holds memory: NAME OBJECTS BYTES, then CALLS of functions
 * that allocate and of those that free: "calls ALLOCATIONS FREES", then "done". */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CALLS 6    /* of each function, */
#define RELEASED 2 /* of whose results so many are freed */
static volatile size_t huge_size = SIZE_MAX / 2 - 4096;
#define HUGE_SIZE huge_size

static long allocations, frees;

static inline void expect(int truth, const char *what)
{
	if (!truth) {
		printf("broken: %s\n", what);
		fflush(stdout);
		abort();
	}
}

/* A case: calls `allocate`, an expression that gives an object of `size` bytes, and frees some of them by `release`, a
 * statement about p. */
#define CASE(name, size, allocate, release)                                                                            \
	__attribute__((noinline)) static void case_##name(void)                                                        \
	{                                                                                                              \
		for (int i = 0; i < CALLS; i++) {                                                                      \
			void *p = (allocate);                                                                          \
			expect(p != NULL, #name);                                                                      \
			allocations++;                                                                                 \
			__asm__ volatile("" : "+r"(p) : : "memory");                                                   \
			if (i < RELEASED) {                                                                            \
				release;                                                                               \
				frees++;                                                                               \
			}                                                                                              \
		}                                                                                                      \
		printf("case_" #name " %d %ld\n", CALLS - RELEASED, (long)(CALLS - RELEASED) * (size));                \
	}

/* A case of a function that changes an object `p` of 48 bytes. `change` gives the object that is there afterwards, of
 * `size` bytes, or NULL if it has been freed. */
#define CHANGE(name, size, make, change)                                                                               \
	__attribute__((noinline)) static void case_##name(void)                                                        \
	{                                                                                                              \
		for (int i = 0; i < CALLS; i++) {                                                                      \
			void *p = (make), *q;                                                                          \
			__asm__ volatile("" : "+r"(p) : : "memory");                                                   \
			q = (change);                                                                                  \
			__asm__ volatile("" : "+r"(q) : : "memory");                                                   \
			expect((q != NULL) == ((size) > 0), #name);                                                    \
			allocations += 2;                                                                              \
		}                                                                                                      \
		if ((size) > 0)                                                                                        \
			printf("case_" #name " %d %ld\n", CALLS, (long)CALLS * (size));                                \
	}

#define SMALL 48 /* bytes of an object that is to be changed */

static inline void wait_for_line(void)
{
	char line[64];

	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

static inline void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

static void run_cases(void);

static int has_argument;

int main(int count, char **arguments)
{
	has_argument = count > 1;
	(void)arguments;
	say("ready");
	wait_for_line();
	run_cases();
	printf("calls %ld %ld\n", allocations, frees);
	say("done");
	wait_for_line();
}
