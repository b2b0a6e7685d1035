/* Grows by one cause, at a steady pace, until its input ends or so many ticks have passed:
 *
 *     causes fragment MICROSECONDS [TICKS]    97 % of its growth is memory that it has freed
 *     causes busy MICROSECONDS [TICKS]        the same, and it allocates and frees much beside it
 *     causes keep MICROSECONDS [TICKS]        it frees nothing
 *     causes read MICROSECONDS FILE           it reads on in a mapped file, and begins again at
 * its end
 *
 * MICROSECONDS lie between two ticks, in which it grows by a MiB. The line "info" at its input
 * prints the result of mallinfo2, "info ARENA FREE INUSE", and "done". It then pauses until another
 * line. */
#include <fcntl.h>
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB (1L << 20)

/* Each block is shrunk in place to its kept part. Blocks of a tick are a little larger than the
 * blocks of the ticks before, as batches of growing length are: none fits the holes that these have
 * left. */
#define BLOCKS 16
#define KEPT 1900

__attribute__((noinline)) void batch(long tick, int keeps)
{
	long size = MIB / BLOCKS + 16 * tick;
	char *blocks[BLOCKS];

	for (int i = 0; i < BLOCKS; i++) {
		blocks[i] = malloc(size);
		memset(blocks[i], 1, size);
	}
	for (int i = 0; i < BLOCKS && !keeps; i++)
		if (realloc(blocks[i], KEPT) != blocks[i])
			abort();
}

__attribute__((noinline)) void churn(void)
{
	for (int i = 0; i < 20000; i++) {
		char *p = malloc(100 + i % 500);

		*(volatile char *)p = 1;
		free(p);
	}
}

__attribute__((noinline)) void read_on(const char *pages, long size, long tick)
{
	volatile const char *at = pages + tick * MIB % size;

	for (long i = 0; i < MIB; i += 4096)
		(void)at[i];
}

static const char *map_file(const char *path, long *size)
{
	int file = open(path, O_RDONLY);
	struct stat status;
	char *pages;

	if (file < 0 || fstat(file, &status) < 0)
		exit(1);
	*size = status.st_size / MIB * MIB;
	pages = mmap(NULL, *size, PROT_READ, MAP_SHARED, file, 0);
	if (pages == MAP_FAILED)
		exit(1);
	return pages;
}

/* Applies the orders at the input, and returns 0 at its end. */
static int apply(void)
{
	static char line[64];
	struct mallinfo2 info;

	while (fgets(line, sizeof(line), stdin)) {
		if (strcmp(line, "info\n"))
			return 1;
		info = mallinfo2();
		printf("info %zu %zu %zu\n", info.arena, info.fordblks, info.uordblks);
		puts("done");
	}
	return 0;
}

int main(int argc, char **argv)
{
	static char buffer[4096];
	int pause = argc > 2 ? atoi(argv[2]) : 0;
	struct pollfd input = { .fd = 0, .events = POLLIN };
	struct timespec next;
	const char *pages = NULL;
	long size = 0;

	if (argc < 3)
		return 1;
	setvbuf(stdout, buffer, _IOLBF, sizeof(buffer));
	setvbuf(stdin, NULL, _IONBF, 0);
	if (!strcmp(argv[1], "read"))
		pages = map_file(argv[3], &size);
	puts("ready");
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (long tick = 0;; tick++) {
		if (pages)
			read_on(pages, size, tick);
		else if (argc < 4 || tick < atol(argv[3]))
			batch(tick, !strcmp(argv[1], "keep"));
		if (!strcmp(argv[1], "busy"))
			churn();
		if (poll(&input, 1, 0) > 0 && !apply())
			return 0;

		/* Until the tick's own moment: a busy machine does not change the pace. */
		next.tv_nsec += pause * 1000L;
		next.tv_sec += next.tv_nsec / 1000000000;
		next.tv_nsec %= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
}
