// A heap of more than a GiB, of which little is in RAM: chunks of a MiB, every second one free,
// and small ones. It prints the bytes in the heap, the free ones and those in fastbins by mallinfo2,
// and again after the line "free", which frees 200 chunks more, that get to the front of their bin.
// Any other line makes it go on with objects that come and go, and with a heap that grows.
#define _GNU_SOURCE
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <poll.h>

enum { LARGE = 1400, SMALL = 20000, SLOTS = 64, LATE = 200 };

static void *large[LARGE], *small_ones[SMALL], *slots[SLOTS], *late[LATE];
static void *volatile between[LATE];

static int has_input(void)
{
	struct pollfd in = { .fd = 0, .events = POLLIN };
	return poll(&in, 1, 0) > 0;
}

static void info(const char *when)
{
	struct mallinfo2 m = mallinfo2();
	printf("%s %zu %zu %zu\ndone\n", when, m.arena, m.fordblks, m.fsmblks);
	fflush(stdout);
}

int main(void)
{
	setvbuf(stdin, NULL, _IONBF, 0); // else it takes a buffer after the count
	mallopt(M_MMAP_THRESHOLD, 1 << 30);
	mallopt(M_TRIM_THRESHOLD, 1 << 30);
	for (int i = 0; i < LARGE; i++)
		large[i] = malloc(1 << 20);
	for (int i = 0; i < LATE; i++) {
		late[i] = malloc(1 << 20);
		between[i] = malloc(2000);
	}
	for (int i = 0; i < SMALL; i++)
		small_ones[i] = malloc(24 + i % 4096);
	for (int i = 0; i < LARGE; i += 2)
		free(large[i]);
	for (int i = 0; i < SMALL; i += 2)
		free(small_ones[i]);
	printf("pid %d\n", getpid());
	info("ready");

	char line[64];
	if (!fgets(line, sizeof line, stdin))
		return 0;
	if (!strcmp(line, "free\n")) {
		for (int i = 0; i < LATE; i++)
			free(late[i]);
		between[0] = malloc(1500); // now they are in their bin
		info("freed");
		if (!fgets(line, sizeof line, stdin))
			return 0;
	}
	printf("going\ndone\n");
	fflush(stdout);
	for (unsigned n = 1; !has_input(); n++) {
		int slot = rand() % SLOTS;
		free(slots[slot]);
		slots[slot] = malloc(32 + rand() % 300000);
		if (n % 1000 == 0 && !malloc(2 << 20))
			return 1;
		if (n % 4 == 0)
			usleep(100);
	}
	return 0;
}
