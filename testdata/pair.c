/* Measures the cost of a malloc/free pair. Each time it reads "go" it makes N pairs of S bytes, and N more until a
 * tenth of a second has passed, and prints what one has cost: nanoseconds of its thread's CPU time, so that other
 * programs on the machine do not count.
 *
 *     pair N S
 *
 * It speaks by lines: prints "ready", then for each "go" a number and "done", and exits at the end of its input. At
 * "fork" it forks a child, whose PID is printed, and which reads on in its place until "leave". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEAST_NS 1e8
#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory") /* the compiler must not remove the pair */

static double thread_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static void make_pairs(long pairs, size_t size)
{
	for (long i = 0; i < pairs; i++) {
		void *p = malloc(size);

		KEEP(p);
		free(p);
	}
}

static double ns_per_pair(long pairs, size_t size)
{
	double began = thread_ns(), passed;
	long made = 0;

	do {
		make_pairs(pairs, size);
		made += pairs;
		passed = thread_ns() - began;
	} while (passed < LEAST_NS);
	return passed / made;
}

/* Returns in the child at once, and in the parent once the child has left. */
static void fork_child(void)
{
	pid_t pid = fork();

	if (pid == 0)
		printf("%d\n", (int)getpid());
	else
		waitpid(pid, NULL, 0);
	puts("done");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	long pairs = argc > 1 ? atol(argv[1]) : 200000;
	size_t size = argc > 2 ? strtoul(argv[2], NULL, 10) : 64;
	char line[64];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "leave\n"))
			_exit(0);
		if (!strcmp(line, "fork\n")) {
			fork_child();
			continue;
		}
		printf("%.3f\ndone\n", ns_per_pair(pairs, size));
		fflush(stdout);
	}
	return 0;
}
