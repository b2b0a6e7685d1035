/* Large mappings of which the pages in memory lie as they would not be expected to. It prints "ready", executes one
 * order a line, prints the truth as breakdown.c does, then prints "done". "all" makes all
 * mappings, "dense" one, of
 * which "discard" gives half back at once, and "lazy" all when the kernel needs memory; "reserve"
 * makes one that
 * "first" touches.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096L
#define MIB (1L << 20)
#define SIZE (192 * MIB)
#define PAGES (SIZE / PAGE)
#define CASE __attribute__((noinline)) void

static char *dense, *reserved;

static inline __attribute__((always_inline)) char *map(int flags, int fd)
{
	char *p = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, flags, fd, 0);

	if (p == MAP_FAILED || madvise(p, SIZE, MADV_NOHUGEPAGE)) {
		perror("mmap");
		exit(1);
	}
	return p;
}

static void truth(const char *name, const char *kind, long bytes)
{
	printf("truth %s %s %ld\n", name, kind, bytes);
}

CASE map_dense(void)
{
	dense = map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	memset(dense, 1, SIZE);
	truth(__func__, "mmap", SIZE);
}

/* Runs of up to 4,000 pages. */
CASE map_bursts(void)
{
	char *p = map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	unsigned int seed = getpid();
	long touched = 0;

	for (long i = 0; i < PAGES; i += rand_r(&seed) % 4000)
		for (long end = i + rand_r(&seed) % 4000; i < end && i < PAGES; i++, touched++)
			p[i * PAGE] = 1;
	truth(__func__, "mmap", touched * PAGE);
}

/* Many pages at the start, few at the end. */
CASE map_thinning(void)
{
	char *p = map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
	unsigned int seed = getpid();
	long touched = 0;

	for (long i = 0; i < PAGES; i++)
		if (rand_r(&seed) % PAGES > i) {
			p[i * PAGE] = 1;
			touched++;
		}
	truth(__func__, "mmap", touched * PAGE);
}

/* Shared memory of which a quarter is touched. */
CASE map_shared(void)
{
	int fd = memfd_create("large", 0);
	char *p;

	if (ftruncate(fd, SIZE))
		exit(1);
	p = map(MAP_SHARED, fd);
	for (long i = 0; i < PAGES; i += 4)
		p[i * PAGE] = 1;
	truth("large", "shmem", SIZE / 4);
}

static inline __attribute__((always_inline)) void allocate(int objects)
{
	for (int i = 0; i < objects; i++)
		memset(malloc(100000), 1, 100000);
}

/* Two stacks of one heap, each in a part of its own. */
CASE heap_low(void)
{
	allocate(700);
	truth(__func__, "heap", 700 * 100000);
}

CASE heap_high(void)
{
	allocate(1400);
	truth(__func__, "heap", 1400 * 100000);
}

CASE touch_first(void)
{
	memset(reserved, 1, SIZE);
	truth(__func__, "older", SIZE);
}

int main(void)
{
	char line[80];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "dense\n"))
			map_dense();
		if (!strcmp(line, "reserve\n"))
			reserved = map(MAP_PRIVATE | MAP_ANONYMOUS, -1);
		if (!strcmp(line, "first\n"))
			touch_first();
		if (!strcmp(line, "discard\n")) {
			madvise(dense, SIZE / 2, MADV_DONTNEED);
			truth("map_dense", "mmap", SIZE / 2);
		}
		if (!strcmp(line, "lazy\n") && madvise(dense, SIZE, MADV_FREE))
			exit(1);
		if (!strcmp(line, "all\n")) {
			map_dense();
			map_bursts();
			map_thinning();
			map_shared();
			heap_low();
			heap_high();
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
