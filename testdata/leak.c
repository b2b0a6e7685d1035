/* A program with a leak of known size: each thread leaks N objects of S bytes in leak_here() and allocates and frees C
 * times as many in churn_here().
 *
 *     leak THREADS N S C
 *
 * It speaks by lines: prints "ready", works when ordered "go", prints "done", and exits at the end of its input. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static long objects, churn;
static size_t size;

#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory") /* the compiler must not remove the pair */

__attribute__((noinline)) void leak_here(void)
{
	char *p = malloc(size);

	p[0] = 1;
	KEEP(p);
}

__attribute__((noinline)) void churn_here(void)
{
	void *p = malloc(size);

	KEEP(p);
	free(p);
}

static void *work(void *unused)
{
	for (long i = 0; i < objects; i++) {
		leak_here();
		for (int j = 0; j < churn; j++)
			churn_here();
	}
	return unused;
}

static void wait_for_line(void)
{
	char line[64];

	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t thread[64];

	objects = argc > 2 ? atol(argv[2]) : 1000;
	size = argc > 3 ? strtoul(argv[3], NULL, 10) : 64;
	churn = argc > 4 ? atol(argv[4]) : 100;
	for (;;) {
		say("ready");
		wait_for_line();
		for (int i = 0; i < threads; i++)
			pthread_create(&thread[i], NULL, work, NULL);
		for (int i = 0; i < threads; i++)
			pthread_join(thread[i], NULL);
		say("done");
	}
}
