/* Maps and unmaps as fast as it goes, beside mappings that stay. It prints "ready", then carries out each line and
 * prints the truth in lines, then "done".
 *
 *     keep N             keep_here() and keep_too() map N pieces each, one a millisecond, while
 * two threads map and
 *                        unmap pieces of the same size under 250 frames, as fast as they go
 *     random N           four threads make N random calls each, and pass their mappings to each
 * other
 *     libraries N FILE   loads and unloads a library N times, and leaves it loaded
 *
 *     holds NAME KIND OBJECTS TOUCHED MAPPED   mappings made there: pieces, bytes touched, bytes
 * ever mapped
 *     releases CALL BYTES                      bytes given back
 *     reserved BYTES                           all that is mapped now; "random" has touched all
 * of it
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096L
#define PIECE (256 * PAGE)
#define STORM_DEPTH 250
#define THREADS 4
#define FUNCTION __attribute__((noinline))

static void check(int truth, const char *what)
{
	if (!truth) {
		perror(what);
		exit(1);
	}
}

static inline __attribute__((always_inline)) char *map(void *at, long bytes, int flags)
{
	char *p = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

	check(p != MAP_FAILED, "mmap");
	return p;
}

static void unmap(char *p, long bytes)
{
	check(!munmap(p, bytes), "munmap");
}

static void touch(volatile char *p, long pages)
{
	for (long i = 0; i < pages; i++)
		p[i * PAGE] = 1;
}

FUNCTION void storm_here(void)
{
	char *p = map(NULL, PIECE, 0);

	__asm__ volatile("" : : "r"(p) : "memory");
	unmap(p, PIECE);
}

FUNCTION void descend(int depth, void (*bottom)(void *), void *argument)
{
	if (depth > 0)
		descend(depth - 1, bottom, argument);
	else
		bottom(argument);
	__asm__ volatile(""); /* no tail call */
}

/* The threads wait from the start: their own stacks are no part of the measurement. */

static atomic_int stop;
static atomic_long stormed;
static void (*job)(int number);
static pthread_barrier_t begin, end;

static void *run_jobs(void *number)
{
	for (;;) {
		pthread_barrier_wait(&begin);
		job((int)(long)number);
		pthread_barrier_wait(&end);
	}
	return NULL;
}

static void start_threads(void)
{
	pthread_t thread;

	pthread_barrier_init(&begin, NULL, THREADS + 1);
	pthread_barrier_init(&end, NULL, THREADS + 1);
	for (long i = 0; i < THREADS; i++)
		check(!pthread_create(&thread, NULL, run_jobs, (void *)i), "pthread_create");
}

static void storm_until_stopped(void *unused)
{
	long times = 0;

	while (!stop) {
		storm_here();
		times++;
	}
	stormed += times;
}

static void storm(int number)
{
	if (number < 2)
		descend(STORM_DEPTH, storm_until_stopped, NULL);
}

FUNCTION void keep_here(void)
{
	touch(map(NULL, PIECE, 0), 3);
}

FUNCTION void keep_too(void)
{
	touch(map(NULL, PIECE, 0), 5);
}

static void keep(long pieces)
{
	stop = 0;
	stormed = 0;
	job = storm;
	pthread_barrier_wait(&begin);
	for (long i = 0; i < pieces; i++) {
		keep_here();
		keep_too();
		usleep(1000);
	}
	stop = 1;
	pthread_barrier_wait(&end);

	printf("holds keep_here mmap %ld %ld %ld\n", pieces, pieces * 3 * PAGE, pieces * PIECE);
	printf("holds keep_too mmap %ld %ld %ld\n", pieces, pieces * 5 * PAGE, pieces * PIECE);
	printf("holds storm_here mmap 0 0 %ld\n", stormed * PIECE);
	printf("releases munmap %ld\n", stormed * PIECE);
	printf("reserved %ld\n", 2 * pieces * PIECE);
}

/* Pieces that any thread may take. A piece is private to the thread that has taken it. */

#define SLOTS 16
#define SLOT_PAGES 8

static struct piece {
	_Atomic(char *) start;
	long pages;
} slots[SLOTS];
static atomic_char taken[SLOTS];
static long calls;

static unsigned int draw(unsigned int *state, unsigned int below)
{
	*state = *state * 1664525 + 1013904223;
	return (*state >> 16) % below;
}

/* Makes one random change to a piece: a new one, gone as a whole or in two halves, shorter at the end or at the
 * start, covered, moved. */
FUNCTION void change(struct piece *piece, unsigned int *state)
{
	char *start = piece->start;
	long pages = piece->pages;

	if (!start) {
		piece->pages = 1 + draw(state, SLOT_PAGES);
		piece->start = map(NULL, piece->pages * PAGE, 0);
		touch(piece->start, piece->pages);
		return;
	}

	switch (pages > 1 ? draw(state, 8) : 0) {
	case 0:
	case 1:
	case 2:
		piece->start = NULL;
		unmap(start, pages * PAGE);
		break;
	case 3:
		piece->start = NULL;
		unmap(start + PAGE, (pages - 1) * PAGE);
		unmap(start, PAGE);
		break;
	case 4:
		unmap(start + --piece->pages * PAGE, PAGE);
		break;
	case 5:
		piece->start = start + PAGE;
		piece->pages--;
		unmap(start, PAGE);
		break;
	case 6:
		touch(map(start, PAGE, MAP_FIXED), 1);
		break;
	case 7:
		start = mremap(start, pages * PAGE, (pages + 1) * PAGE, MREMAP_MAYMOVE);
		if (start == MAP_FAILED) /* part of it has been covered, and is a VMA of its own */
			break;
		touch(start, ++piece->pages);
		piece->start = start;
		break;
	}
}

static void change_at_random(int number)
{
	unsigned int state = number + 1;

	for (long i = 0; i < calls; i++) {
		unsigned int slot = draw(&state, SLOTS);

		if (atomic_exchange(&taken[slot], 1))
			continue;
		change(&slots[slot], &state);
		atomic_store(&taken[slot], 0);
	}
}

static void random_calls(long each)
{
	long pages = 0;

	calls = each;
	job = change_at_random;
	pthread_barrier_wait(&begin);
	pthread_barrier_wait(&end);
	for (int i = 0; i < SLOTS; i++)
		pages += slots[i].start ? slots[i].pages : 0;
	printf("reserved %ld\n", pages * PAGE);
}

static void libraries(long times, const char *file)
{
	for (;;) {
		void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);

		check(!!library, dlerror());
		if (--times <= 0)
			return;
		dlclose(library);
	}
}

static void carry_out(char *line)
{
	char *order = strtok(line, " \n"), *first = strtok(NULL, " \n"), *second = strtok(NULL, " \n");
	long number = first ? atol(first) : 0;

	if (!strcmp(order, "keep"))
		keep(number);
	else if (!strcmp(order, "random"))
		random_calls(number);
	else if (!strcmp(order, "libraries"))
		libraries(number, second);
	else
		exit(1);
}

int main(void)
{
	char line[4096];

	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* a huge page would touch 512 at once */
	start_threads();
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		carry_out(line);
		puts("done");
		fflush(stdout);
	}
	return 0;
}
