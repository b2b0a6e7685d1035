/* Allocates and frees on command, so that the live blocks are known at every moment.
 *
 * Lines that it understands, each answered by "done":
 *
 *     keep N SIZE     kept_here() allocates N objects, and they stay; their contents differ
 *     other N SIZE    other_here() does; all of them have equal contents
 *     drop N          the N oldest of all that are kept are freed
 *     churn N SIZE    churn_here() allocates and frees N times
 *
 * It prints "ready" at first and exits at the end of its input. */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST 1000000

static void *kept[MOST];
static long first, last;

__attribute__((noinline)) void *kept_here(size_t size)
{
	void *p = malloc(size);

	memset(p, 3 + last % 251, size);
	return p;
}

__attribute__((noinline)) void *other_here(size_t size)
{
	void *p = malloc(size);

	memset(p, 2, size);
	return p;
}

__attribute__((noinline)) void churn_here(size_t size)
{
	void *p = malloc(size);

	memset(p, 3, size);
	__asm__ volatile("" : : "r"(p) : "memory");
	free(p);
}

static void execute(const char *verb, long n, size_t size)
{
	for (long i = 0; i < n; i++) {
		if (!strcmp(verb, "drop"))
			free(kept[first++]);
		else if (!strcmp(verb, "churn"))
			churn_here(size);
		else
			kept[last++] = strcmp(verb, "keep") ? other_here(size) : kept_here(size);
	}
}

int main(void)
{
	static char line[256], buffer[4096];
	char verb[16];
	long n;
	size_t size;

	mallopt(M_MMAP_THRESHOLD, 32 << 20); /* mremap would not copy */
	setvbuf(stdout, buffer, _IOLBF, sizeof(buffer));
	for (puts("ready"); fgets(line, sizeof(line), stdin); puts("done")) {
		size = 0;
		if (sscanf(line, "%15s %ld %zu", verb, &n, &size) < 2 || last + n > MOST)
			return 1;
		execute(verb, n, size);
	}
	return 0;
}
