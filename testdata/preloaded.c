/* Calls that a preloaded sampler must see, and must not change. The first argument chooses; the
 * last line is "done".
 *
 * It is built with -fno-builtin, for the compiler would leave out calls, and take errno to be the
 * same.
 *
 *     calls            every kind of call; then one line for each event: alloc ADDRESS SIZE, or
 *                      free ADDRESS
 *     mixed N          N allocations of sizes up to 1 MiB, freed at once; then SIZE COUNT of each
 *                      size
 *     sites N          N objects of 1000 bytes that live at once, and N of 1001 that are freed at
 * once
 *     keep N           N objects of 24 bytes that live at once, then are freed
 *     threads T N      T threads, which free N objects of each other
 *     forks N          N children, of which each allocates 10 objects of 32 bytes and frees 9; its
 *                      PID is printed
 *     sandbox          a child that allocates 200 objects of 60000 bytes, and may only read, write
 *                      and exit then; its PID is printed
 *     idle             waits for a line before it allocates a megabyte 100 times */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The addresses of freed objects are compared, and never used. */
#pragma GCC diagnostic ignored "-Wuse-after-free"

#define KEEP(p) __asm__ volatile("" : "+r"(p) : : "memory")
#define STRANGE_ERRNO 4321
#define SECCOMP_MODE_STRICT 1 /* linux/seccomp.h, which musl-gcc lacks */

static volatile size_t huge_size = SIZE_MAX / 2 - 4096;

static struct {
	void *object;
	size_t size; /* SIZE_MAX: freed */
} events[1000];
static int event_count;

static void expect(int truth, const char *what)
{
	if (!truth) {
		printf("broken: %s, errno %d\n", what, errno);
		fflush(stdout);
		abort();
	}
}

static void expect_errno(int wanted, const char *what)
{
	expect(errno == wanted, what);
	errno = STRANGE_ERRNO;
}

static void *allocated(void *object, size_t size, const char *what)
{
	KEEP(object);
	expect(object != NULL, what);
	expect_errno(STRANGE_ERRNO, what);
	events[event_count].object = object;
	events[event_count++].size = size;
	return object;
}

static void freed(void *object)
{
	expect_errno(STRANGE_ERRNO, "free");
	events[event_count].object = object;
	events[event_count++].size = SIZE_MAX;
}

static void release(void *object)
{
	free(object);
	freed(object);
}

static void *reallocated(void *old, void *object, size_t size, const char *what)
{
	if (old)
		freed(old);
	return allocated(object, size, what);
}

/* Fails where the old object has been sampled, and where no allocator could have so much. */
static void *fail_to_grow(void *p)
{
	struct rlimit before, limit;

	getrlimit(RLIMIT_AS, &before);
	limit = before;
	limit.rlim_cur = 1 << 30;
	setrlimit(RLIMIT_AS, &limit);
	errno = STRANGE_ERRNO;
	expect(!realloc(p, (volatile size_t){ 2UL << 30 }), "realloc without memory");
	expect_errno(ENOMEM, "realloc without memory");
	freed(p);
	allocated(p, 300, "the old object");
	setrlimit(RLIMIT_AS, &before);
	errno = STRANGE_ERRNO;

	expect(!realloc(p, huge_size), "huge realloc");
	expect_errno(ENOMEM, "huge realloc");
#ifdef __GLIBC__
	expect(!reallocarray(p, huge_size, 3), "reallocarray overflow");
	expect_errno(ENOMEM, "reallocarray overflow");
#endif
	return p;
}

static void call_sized(void *function, void *p, size_t alignment, size_t size)
{
	if (!function)
		return free(p), freed(p);
	if (alignment)
		((void (*)(void *, size_t, size_t))function)(p, alignment, size);
	else
		((void (*)(void *, size_t))function)(p, size);
	freed(p);
}

static void run_calls(void)
{
	void *p, *q = NULL;

	void *free_sized = dlsym(RTLD_DEFAULT, "free_sized"); /* absent from older libraries */
	void *free_aligned_sized = dlsym(RTLD_DEFAULT, "free_aligned_sized");

	errno = STRANGE_ERRNO;
	release(allocated(malloc(12345), 12345, "malloc"));
	release(allocated(malloc(0), 0, "malloc(0)"));
	p = allocated(malloc(100), 100, "malloc");
	p = reallocated(p, realloc(p, 200), 200, "realloc");
	p = reallocated(p, realloc(p, 100000), 100000, "realloc");
	p = reallocated(p, realloc(p, 300), 300, "realloc");
	p = fail_to_grow(p);
	release(p);
	release(reallocated(NULL, realloc(NULL, 77), 77, "realloc(NULL)"));

	p = allocated(calloc(7, 33), 7 * 33, "calloc");
	for (int i = 0; i < 7 * 33; i++)
		expect(((char *)p)[i] == 0, "calloc");
	release(p);
	expect(!calloc(huge_size, 3), "calloc overflow");
	expect_errno(ENOMEM, "calloc overflow");
	expect(!malloc((volatile size_t){ SIZE_MAX }), "malloc(SIZE_MAX)");
	expect_errno(ENOMEM, "malloc(SIZE_MAX)");
	expect(!malloc((volatile size_t){ SIZE_MAX / 2 + 5 }), "malloc(SIZE_MAX / 2 + 5)");
	expect_errno(ENOMEM, "malloc(SIZE_MAX / 2 + 5)");

	expect(posix_memalign(&q, 3, 500) == EINVAL && !q, "posix_memalign(3)");
	expect(posix_memalign(&q, 64, huge_size) == ENOMEM && !q, "huge posix_memalign");
	errno = STRANGE_ERRNO;
	expect(!posix_memalign(&q, 128, 500) && (uintptr_t)q % 128 == 0, "posix_memalign");
	release(allocated(q, 500, "posix_memalign"));
	release(allocated(aligned_alloc(64, 640), 640, "aligned_alloc"));
	release(allocated(memalign(256, 641), 641, "memalign"));
#ifdef __GLIBC__
	release(allocated(valloc(642), 642, "valloc"));
	release(allocated(pvalloc(643), 643, "pvalloc"));
	p = reallocated(NULL, reallocarray(NULL, 7, 11), 77, "reallocarray");
	p = reallocated(p, reallocarray(p, 70, 11), 770, "reallocarray");
	release(p);
	p = allocated(malloc(90), 90, "malloc");
	expect(!realloc(p, (volatile size_t){ 0 }), "realloc(p, 0)");
	freed(p);
#endif
	release(allocated(strdup("twelve bytes"), 13, "strdup"));
	p = allocated(malloc(61), 61, "malloc");
	call_sized(free_sized, p, 0, 61);
	p = allocated(aligned_alloc(64, 64), 64, "aligned_alloc");
	call_sized(free_aligned_sized, p, 64, 64);
	free((void *volatile){ NULL });
	release(allocated(malloc(54321), 54321, "malloc"));

	for (int i = 0; i < event_count; i++)
		if (events[i].size == SIZE_MAX)
			printf("free %lu\n", (unsigned long)events[i].object);
		else
			printf("alloc %lu %lu\n", (unsigned long)events[i].object, (unsigned long)events[i].size);
}

static void run_mixed(long n)
{
	static const size_t sizes[] = { 1, 24, 100, 700, 4096, 30000, 200000, 1 << 20 };
	enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };
	long counts[SIZES] = { 0 };
	uint64_t random = 88172645463325252;

	for (long i = 0; i < n; i++) {
		int kind = 0;

		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		for (uint64_t r = random; kind < SIZES - 1 && (r & 3) == 0; r >>= 2)
			kind++;

		void *p = malloc(sizes[kind]);

		KEEP(p);
		free(p);
		counts[kind]++;
	}
	for (int i = 0; i < SIZES; i++)
		printf("%zu %ld\n", sizes[i], counts[i]);
}

static void *objects[1 << 20];

static void run_sites(long n)
{
	for (long i = 0; i < n; i++) {
		objects[i] = malloc(1000);

		void *p = malloc(1001);

		KEEP(p);
		free(p);
	}
	for (long i = 0; i < n; i++)
		free(objects[i]);
}

static void run_keep(long n)
{
	for (long i = 0; i < n; i++)
		objects[i] = malloc(24);
	for (int i = 0; i < 1000; i++)
		free((void *volatile){ NULL });
	for (long i = 0; i < n; i++)
		free(objects[i]);
}

static void *mailbox[64];

static void *exchange(void *n)
{
	for (long i = 0; i < (long)n; i++)
		free(__atomic_exchange_n(&mailbox[i % 64], malloc(40), __ATOMIC_ACQ_REL));
	return NULL;
}

static void run_threads(long threads, long n)
{
	pthread_t ids[64];

	for (int i = 0; i < threads; i++)
		expect(!pthread_create(&ids[i], NULL, exchange, (void *)n), "thread");
	for (int i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	for (int i = 0; i < 64; i++)
		free(mailbox[i]);
}

static void run_forks(long n)
{
	pid_t pids[2000];

	for (int i = 0; i < n; i++) {
		pids[i] = fork();
		expect(pids[i] >= 0, "fork");
		if (pids[i])
			continue;

		void *p[10];
		for (int k = 0; k < 10; k++)
			p[k] = malloc(32);
		for (int k = 1; k < 10; k++)
			free(p[k]);
		_exit(0);
	}
	for (int i = 0; i < n; i++) {
		int status;

		waitpid(pids[i], &status, 0);
		expect(status == 0, "child");
	}
	for (int i = 0; i < n; i++)
		printf("%d\n", pids[i]);
}

static void run_sandbox(void)
{
	int status;
	pid_t child;

	free(malloc(100000)); /* which the C library keeps */
	child = fork();
	expect(child >= 0, "fork");
	if (!child) {
		prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT);
		for (int i = 0; i < 200; i++) {
			void *p = malloc(60000);

			KEEP(p);
			free(p);
		}
		syscall(SYS_exit, 0);
	}
	waitpid(child, &status, 0);
	expect(status == 0, "child in the sandbox");
	printf("%d\n", child);
}

static void run_idle(void)
{
	for (int i = 0; i < 100; i++) {
		void *p = malloc(1 << 20);

		KEEP(p);
		free(p);
	}
}

static void run(const char *what, long a, long b)
{
	if (!strcmp(what, "calls"))
		run_calls();
	else if (!strcmp(what, "mixed"))
		run_mixed(a);
	else if (!strcmp(what, "sites"))
		run_sites(a);
	else if (!strcmp(what, "keep"))
		run_keep(a);
	else if (!strcmp(what, "threads"))
		run_threads(a, b);
	else if (!strcmp(what, "forks"))
		run_forks(a);
	else if (!strcmp(what, "sandbox"))
		run_sandbox();
	else if (!strcmp(what, "idle"))
		run_idle();
}

/* Executes each line of its input. */
int main(int count, char **arguments)
{
	static char input[4096];
	char line[64];

	setvbuf(stdin, input, _IOFBF, sizeof(input)); /* which it would allocate later */
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		run(arguments[1], count > 2 ? atol(arguments[2]) : 0, count > 3 ? atol(arguments[3]) : 0);
		puts("done");
		fflush(stdout);
	}
}
