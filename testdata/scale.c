/* Large and awkward address spaces. It prints "ready", and executes its orders, line by line; then
 * it prints "done".
 *
 *     resident MIB     writes so much private memory, in pages of 4 KiB
 *     reserve GIB      maps so much and writes nothing
 *     mappings N       N mappings of a page, none of which the kernel can join to another
 *     workers N        forks N processes that wait; prints "child PID" of each
 *     top              maps and writes the last page that a process can have
 *     storm            a thread maps, writes and unmaps from now on
 *     calm             ends that
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define PAGE 4096L

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

static void resident(long mib)
{
	char *p = map(NULL, mib << 20);

	madvise(p, mib << 20, MADV_NOHUGEPAGE);
	touch(p, mib << 20, PAGE);
}

static void mappings(long n)
{
	char *p = map(NULL, n * PAGE);

	touch(p, n * PAGE, PAGE);
	for (long i = 0; i < n; i += 2)
		check(!mprotect(p + i * PAGE, PAGE, PROT_READ), "mprotect");
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

static void *storm(void *unused)
{
	while (storming) {
		char *p = map(NULL, PAGE);

		*p = 1;
		munmap(p, PAGE);
	}
	return unused;
}

static void calm(pthread_t thread)
{
	storming = 0;
	pthread_join(thread, NULL);
}

int main(void)
{
	char line[64], what[64];
	pthread_t thread;
	long n;

	for (puts("ready"), fflush(stdout); fgets(line, sizeof(line), stdin); puts("done"), fflush(stdout)) {
		n = 0;
		sscanf(line, "%63s %ld", what, &n);
		if (!strcmp(what, "resident"))
			resident(n);
		else if (!strcmp(what, "reserve"))
			map(NULL, n << 30);
		else if (!strcmp(what, "mappings"))
			mappings(n);
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
