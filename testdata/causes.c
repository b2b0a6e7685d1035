/* Grows by one cause, at a steady pace, until its input ends or so many ticks have passed:
 *
 *     causes fragment MICROSECONDS [TICKS]    97 % of its growth is memory that it has freed
 *     causes keep MICROSECONDS [TICKS]        it frees nothing
 *
 * MICROSECONDS lie between two ticks, in which it grows by a MiB. The line "info" at its input
 * prints the result of mallinfo2, "info ARENA FREE INUSE", and "done". It then pauses until another
 * line. */
#include <malloc.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

	if (argc < 3)
		return 1;
	setvbuf(stdout, buffer, _IOLBF, sizeof(buffer));
	setvbuf(stdin, NULL, _IONBF, 0);
	puts("ready");
	clock_gettime(CLOCK_MONOTONIC, &next);
	for (long tick = 0;; tick++) {
		if (argc < 4 || tick < atol(argv[3]))
			batch(tick, !strcmp(argv[1], "keep"));
		if (poll(&input, 1, 0) > 0 && !apply())
			return 0;

		/* Until the tick's own moment: a busy machine does not change the pace. */
		next.tv_nsec += pause * 1000L;
		next.tv_sec += next.tv_nsec / 1000000000;
		next.tv_nsec %= 1000000000;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
}
