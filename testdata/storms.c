/* A storm of one kind of call, under a stack of FRAMES frames, beside a leak under another stack:
 *
 *     storms STORM ROUNDS LEAK PLUGIN
 *
 * STORM is one of those in `storms` below, ROUNDS how many it may do a second (0: as many as it
 * can), LEAK the bytes
 * that keep_block() keeps a second, and PLUGIN a shared library that the storm dlopen opens.
 *
 * It has the protocol of peers/peer.py, and prints "done" after each stretch. CPU is the user and
 * system time of its
 * threads, and of its children that have ended.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FRAMES 250
#define PAGE 4096L
#define ARENA (1L << 20)   /* bytes: Python maps it for its small objects */
#define BLOCK (200L << 10) /* bytes: more than malloc keeps at the top of its heap */
#define INHERITED 4096     /* pages that a child shares with us */
#define THREADS 8          /* at once: their stacks are more than the C library keeps */
#define KEPT 4000          /* bytes that are kept at a time */
#define BATCH 20           /* rounds between two looks at the clock */
#define PAUSE 1000         /* us */
#define NS 1e-9
#define US 1e-6

static const char *plugin;
static double leak; /* bytes a second */
static void **last;
static long kept; /* bytes */

static void check(int truth, const char *what)
{
	if (!truth) {
		perror(what);
		exit(1);
	}
}

static __attribute__((noinline)) void map_and_unmap(void)
{
	char *arena = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(arena != MAP_FAILED, "mmap");
	*(volatile char *)arena = 1;
	munmap(arena, ARENA);
}

/* With the thresholds of main, malloc asks for this block by brk, and free gives it back at once. */
static __attribute__((noinline)) void brk_up_and_down(void)
{
	volatile char *block = malloc(BLOCK);

	*block = 1;
	free((void *)block);
}

static char *inherited;
static int child, untouched;

static void end_child(void)
{
	if (child) {
		kill(child, SIGKILL);
		waitpid(child, NULL, 0);
	}
	child = untouched = 0;
}

static void fork_child(void)
{
	end_child();
	child = fork();
	check(child >= 0, "fork");
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	untouched = INHERITED;
}

static __attribute__((noinline)) void fault_after_fork(void)
{
	if (untouched == 0)
		fork_child();
	inherited[--untouched * PAGE]++;
}

static __attribute__((noinline)) void dlopen_and_dlclose(void)
{
	void *library = dlopen(plugin, RTLD_NOW);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	dlclose(library);
}

static void *live_briefly(void *unused)
{
	volatile char *block = malloc(KEPT);

	*block = 1;
	free((void *)block);
	return unused;
}

static pthread_t threads[THREADS];
static int running;

static void join_threads(void)
{
	while (running > 0)
		pthread_join(threads[--running], NULL);
}

static __attribute__((noinline)) void thread_comes_and_goes(void)
{
	if (running == THREADS)
		join_threads();
	check(pthread_create(&threads[running++], NULL, live_briefly, NULL) == 0, "pthread_create");
}

static void start_program(void)
{
	char *const argv[] = { "true", NULL };
	pid_t pid;

	check(posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ) == 0, "posix_spawnp");
	waitpid(pid, NULL, 0);
}

static const struct storm {
	const char *name;
	void (*round)(void);
} storms[] = {
	{ "map", map_and_unmap },         { "brk", brk_up_and_down },           { "fork", fault_after_fork },
	{ "dlopen", dlopen_and_dlclose }, { "threads", thread_comes_and_goes }, { "start", start_program },
};

static const struct storm *storm_named(const char *name)
{
	for (size_t i = 0; i < sizeof(storms) / sizeof(*storms); i++)
		if (strcmp(storms[i].name, name) == 0)
			return &storms[i];
	fprintf(stderr, "no storm %s\n", name);
	exit(1);
}

/* Calls itself until there are as many frames as ordered, and does some rounds there. */
static __attribute__((noinline)) void descend(int frames, const struct storm *storm, int rounds)
{
	if (frames > 0)
		descend(frames - 1, storm, rounds);
	else
		for (int i = 0; i < rounds; i++)
			storm->round();
	__asm__ volatile("" : : : "memory"); /* so that the call above is no jump */
}

static __attribute__((noinline)) void keep_block(void)
{
	void **block = malloc(KEPT); /* LEAK */

	memset(block, 1, KEPT);
	*block = last;
	last = block;
	kept += KEPT;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec * NS;
}

static double cpu_of(int who)
{
	struct rusage r;

	getrusage(who, &r);
	return r.ru_utime.tv_sec + r.ru_stime.tv_sec + (r.ru_utime.tv_usec + r.ru_stime.tv_usec) * US;
}

static double cpu(void)
{
	return cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN);
}

static void stretch(const struct storm *storm, double limit, double seconds)
{
	double began = now(), spent = cpu();
	long rounds = 0, before = kept;

	for (double passed = 0; passed < seconds; passed = now() - began) {
		while (kept - before < passed * leak)
			keep_block();
		if (limit > 0 && rounds > passed * limit) {
			usleep(PAUSE);
			continue;
		}
		descend(FRAMES, storm, BATCH);
		rounds += BATCH;
	}
	join_threads();
	end_child();
	printf("steps %ld seconds %.6f cpu %.6f planted %ld\n", rounds, now() - began, cpu() - spent, kept);
}

int main(int argc, char **argv)
{
	const struct storm *storm;
	char line[64];

	if (argc < 5) {
		fprintf(stderr, "usage: %s STORM ROUNDS LEAK PLUGIN\n", argv[0]);
		return 2;
	}
	storm = storm_named(argv[1]);
	leak = atof(argv[3]);
	plugin = argv[4];

	mallopt(M_TRIM_THRESHOLD, 0);
	mallopt(M_TOP_PAD, 0);
	mallopt(M_MMAP_THRESHOLD, 4 * BLOCK);
	inherited = mmap(NULL, INHERITED * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(inherited != MAP_FAILED, "mmap");
	memset(inherited, 1, INHERITED * PAGE);

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("ready %d planted 0\n", (int)getpid());
	while (fgets(line, sizeof(line), stdin) && strcmp(line, "exit\n") != 0) {
		stretch(storm, atof(argv[2]), atof(line));
		puts("done");
	}
	return 0;
}
