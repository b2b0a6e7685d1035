/* Measures the cost of a malloc/free pair. Each time it reads "go" it makes N pairs of S bytes, and
 * N more until a tenth of a second has passed, and prints the cost of one: nanoseconds of its
 * thread's CPU time, so that other programs on the machine do not count. T threads do so at once,
 * and the number is their mean.
 *
 *     pair N S T
 *
 * It speaks by lines: prints "ready", then for each "go" a number and "done", and exits at the end
 * of its input. At "fork" it forks a child, whose PID is printed, and which reads on in its place
 * until "leave". */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define LEAST_NS 1e8
#define MAX_THREADS 64
#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory") /* the compiler must not remove the pair */

static long pairs = 200000;
static size_t size = 64;

static double thread_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static void make_pairs(void)
{
	for (long i = 0; i < pairs; i++) {
		void *p = malloc(size);

		KEEP(p);
		free(p);
	}
}

static void *measure(void *ns_per_pair)
{
	double began = thread_ns(), passed;
	long made = 0;

	do {
		make_pairs();
		made += pairs;
		passed = thread_ns() - began;
	} while (passed < LEAST_NS);
	*(double *)ns_per_pair = passed / made;
	return NULL;
}

static double ns_per_pair(int threads)
{
	pthread_t ids[MAX_THREADS];
	double each[MAX_THREADS], sum = 0;

	for (int i = 1; i < threads; i++)
		pthread_create(&ids[i], NULL, measure, &each[i]);
	measure(&each[0]);
	for (int i = 1; i < threads; i++)
		pthread_join(ids[i], NULL);
	for (int i = 0; i < threads; i++)
		sum += each[i];
	return sum / threads;
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
	int threads = argc > 3 ? atoi(argv[3]) : 1;
	char line[64];

	if (argc > 1)
		pairs = atol(argv[1]);
	if (argc > 2)
		size = strtoul(argv[2], NULL, 10);
	if (threads < 1 || threads > MAX_THREADS)
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "leave\n"))
			_exit(0);
		if (!strcmp(line, "fork\n")) {
			fork_child();
			continue;
		}
		printf("%.3f\ndone\n", ns_per_pair(threads));
		fflush(stdout);
	}
	return 0;
}
