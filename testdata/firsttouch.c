/* Memory that is mapped before it is traced, and touched later. It prints "ready", and carries out one order a line,
 * then prints "done".
 *
 *     early, late    touch_early() or touch_late() write to all pages of one mapping
 *     release        gives these pages back
 *     small          touch_small() writes to all pages of a second mapping, which has no huge pages
 *     collapse       makes huge pages of them, as khugepaged does
 *     huge           touch_huge() writes to a third mapping, which has huge pages
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096L
#define HUGE (2L << 20)
#define SIZE (64 * HUGE)
#define CASE __attribute__((noinline)) void

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static char *area, *small_area, *huge_area;

static void check(int truth, const char *what)
{
	if (!truth) {
		perror(what);
		exit(1);
	}
}

/* Maps SIZE bytes at a multiple of HUGE. The rest around them keeps the kernel from merging
 * mappings. */
static char *map(int advice)
{
	char *p = mmap(NULL, SIZE + 2 * HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(p != MAP_FAILED, "mmap");
	p += HUGE - (unsigned long)p % HUGE;
	check(!mprotect(p, SIZE, PROT_READ | PROT_WRITE), "mprotect");
	madvise(p, SIZE, advice); /* which the kernel may not have */
	return p;
}

static inline __attribute__((always_inline)) void touch(volatile char *p)
{
	for (long i = 0; i < SIZE; i += PAGE)
		p[i] = 1;
}

CASE touch_early(void)
{
	touch(area);
}

CASE touch_late(void)
{
	touch(area);
}

CASE touch_small(void)
{
	touch(small_area);
}

CASE touch_huge(void)
{
	touch(huge_area);
}

int main(void)
{
	char line[80];

	area = map(MADV_NOHUGEPAGE);
	small_area = map(MADV_NOHUGEPAGE);
	huge_area = map(MADV_HUGEPAGE);

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "early\n"))
			touch_early();
		if (!strcmp(line, "late\n"))
			touch_late();
		if (!strcmp(line, "release\n"))
			check(!madvise(area, SIZE, MADV_DONTNEED), "MADV_DONTNEED");
		if (!strcmp(line, "small\n"))
			touch_small();
		if (!strcmp(line, "collapse\n")) {
			madvise(small_area, SIZE, MADV_HUGEPAGE);
			madvise(small_area, SIZE, MADV_COLLAPSE); /* from Linux 6.1 on */
		}
		if (!strcmp(line, "huge\n"))
			touch_huge();
		puts("done");
		fflush(stdout);
	}
	return 0;
}
