/* Large and awkward address spaces. It prints "ready", and executes its orders, line by line; then
 * it prints "done".
 *
 *     resident MIB     writes so much private memory, in pages of 4 KiB
 *     huge MIB         the same in huge pages
 *     reserve GIB      maps so much and writes nothing
 *     mappings N       N mappings of a page, none of which the kernel can join to another
 *     stripes N        N pages, every other one of a mapping
 *     workers N        forks N processes that wait; prints "child PID" of each
 *     top              maps and writes the last page that a process can have
 *     storm            a thread maps, writes and unmaps from now on
 *     calm             ends that; prints "ns MEDIAN P99 P999 WORST ROUNDS" of a mmap and a munmap
 * of a page
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L
#define HUGE (2L << 20)
#define ROUNDS (1 << 22)

static void check(int truth, const char *what)
{
	if (!truth) {
		perror(what);
		exit(1);
	}
}

static char *map(char *at, long bytes)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (at ? MAP_FIXED_NOREPLACE : 0);
	char *p = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);

	check(p != MAP_FAILED, "mmap");
	return p;
}

static void touch(char *p, long bytes, long step)
{
	for (long i = 0; i < bytes; i += step)
		p[i] = 1;
}

static void resident(long mib, int advice)
{
	char *p = map(NULL, (mib << 20) + HUGE);

	p += -(unsigned long)p % HUGE;
	madvise(p, mib << 20, advice); /* which the kernel may not have */
	touch(p, mib << 20, PAGE);
}

static void mappings(long n)
{
	char *p = map(NULL, n * PAGE);

	touch(p, n * PAGE, PAGE);
	for (long i = 0; i < n; i += 2)
		check(!mprotect(p + i * PAGE, PAGE, PROT_READ), "mprotect");
}

static void stripes(long n)
{
	char *p = map(NULL, n * 2 * PAGE);

	madvise(p, n * 2 * PAGE, MADV_NOHUGEPAGE);
	touch(p, n * 2 * PAGE, 2 * PAGE);
}

static void workers(long n)
{
	for (long i = 0; i < n; i++) {
		pid_t pid = fork();

		check(pid >= 0, "fork");
		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			for (;;)
				pause();
		}
		printf("child %d\n", pid);
	}
}

static volatile int storming;
static unsigned *took;
static long rounds;

static long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000L + t.tv_nsec;
}

static void *storm(void *unused)
{
	for (rounds = 0; storming && rounds < ROUNDS; rounds++) {
		long began = now();
		char *p = map(NULL, PAGE);

		*p = 1;
		munmap(p, PAGE);
		took[rounds] = now() - began;
	}
	return unused;
}

static int by_size(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;

	return (x > y) - (x < y);
}

static void calm(pthread_t thread)
{
	storming = 0;
	pthread_join(thread, NULL);
	check(rounds > 0, "storm");
	qsort(took, rounds, sizeof(*took), by_size);
	printf("ns %u %u %u %u %ld\n", took[rounds / 2], took[rounds - 1 - rounds / 100],
	       took[rounds - 1 - rounds / 1000], took[rounds - 1], rounds);
}

int main(void)
{
	char line[64], what[64];
	pthread_t thread;
	long n;

	took = calloc(ROUNDS, sizeof(*took));
	for (puts("ready"), fflush(stdout); fgets(line, sizeof(line), stdin); puts("done"), fflush(stdout)) {
		n = 0;
		sscanf(line, "%63s %ld", what, &n);
		if (!strcmp(what, "resident"))
			resident(n, MADV_NOHUGEPAGE);
		else if (!strcmp(what, "huge"))
			resident(n, MADV_HUGEPAGE);
		else if (!strcmp(what, "reserve"))
			map(NULL, n << 30);
		else if (!strcmp(what, "mappings"))
			mappings(n);
		else if (!strcmp(what, "stripes"))
			stripes(n);
		else if (!strcmp(what, "workers"))
			workers(n);
		else if (!strcmp(what, "top"))
			touch(map((char *)((1L << 47) - 2 * PAGE), PAGE), PAGE, PAGE);
		else if (!strcmp(what, "storm"))
			storming = 1, check(!pthread_create(&thread, NULL, storm, NULL), "pthread_create");
		else if (!strcmp(what, "calm"))
			calm(thread);
	}
	return 0;
}
