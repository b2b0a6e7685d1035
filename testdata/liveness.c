/* Blocks of all sizes that threads allocate and free, with a table that always has the truth about them.
 *
 *     tracked objects TABLE THREADS SLOTS MODE
 *
 * TABLE is a file that is mapped: a struct slot for each of SLOTS blocks, then as many for the
 * blocks freed last. A slot's turn is odd while its block is alive: it becomes even before the
 * block is freed, and odd after one was allocated. The turn of a freed block shows whether it is
 * there (1) or being written (0).
 *
 * MODE: mixed (all functions and sizes; blocks are freed by any thread, half of them are never
 * written to; threads end
 * and others come), fast (many frees of small blocks, no thread cache can hold them), lru (a
 * freed block is replaced by
 * one of the same size). At "stop" all threads pause and it prints "stopped", at "go" they go on
 * and it prints "going". At "info" it prints the output of malloc_info(3), and "done".
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LIFE 20000 /* rounds of a thread */

struct slot {
	_Atomic uint64_t turn;
	uint64_t address, size, unused;
};

static struct slot *slots, *freed;
static unsigned long count;
static atomic_ulong frees;
static pthread_rwlock_t running = PTHREAD_RWLOCK_INITIALIZER;
static const char *mode;

static void check(int truth, const char *what)
{
	if (!truth) {
		perror(what);
		exit(1);
	}
}

static uint64_t draw(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* Bytes: mostly small ones; of all sizes up to 1 MiB. */
static size_t some_size(uint64_t *state)
{
	uint64_t kind = draw(state) % 1000;

	if (*mode == 'f')
		return 1 + draw(state) % 120;
	if (kind < 700)
		return 1 + draw(state) % 1024;
	if (kind < 970)
		return 1 + draw(state) % 8192;
	if (kind < 999)
		return 1 + draw(state) % (64 << 10);
	return 1 + draw(state) % (1 << 20);
}

static void *obtain(size_t size, uint64_t *state)
{
	void *block;

	switch (*mode == 'm' ? draw(state) % 8 : 0) {
	case 0:
		block = memalign(16ul << draw(state) % 9, size);
		break;
	case 1:
		return calloc(1, size);
	default:
		block = malloc(size);
	}
	check(block != NULL, "malloc");
	if (*mode != 'm' || draw(state) % 2)
		memset(block, 0x5a + draw(state) % 64, size);
	return block;
}

static void note_freed(uint64_t address, uint64_t size)
{
	struct slot *f = &freed[atomic_fetch_add(&frees, 1) % count];

	atomic_store(&f->turn, 0);
	f->address = address;
	f->size = size;
	atomic_store(&f->turn, 1);
}

/* Does something to a slot whose block, if any, is in our hands. */
static void change(struct slot *s, uint64_t turn, uint64_t *state)
{
	uint64_t what = draw(state) % 16, old = s->address, size = s->size;
	void *block;

	if (turn & 1)
		note_freed(old, size);
	if ((turn & 1) && what < 3 && *mode == 'm') {
		s->size = some_size(state);
		block = realloc((void *)old, s->size);
	} else {
		if (turn & 1)
			free((void *)old);
		if (*mode != 'l' && what < 9) {
			atomic_store(&s->turn, (turn | 1) + 1);
			return;
		}
		if (*mode != 'l' || !(turn & 1))
			s->size = some_size(state);
		block = obtain(s->size, state);
	}
	s->address = (uint64_t)block;
	atomic_store(&s->turn, (turn | 1) + 2);
}

static void rounds(uint64_t *state)
{
	struct slot *s;
	uint64_t turn;

	for (long i = 0; i < LIFE; i++) {
		unsigned long hot = draw(state) % 8192 ? count / 8 : count;
		unsigned long first = draw(state) % hot, run = *mode == 'f' ? 64 : 1;

		pthread_rwlock_rdlock(&running);
		for (unsigned long k = 0; k < run; k++) {
			s = &slots[(first + k) % count];
			turn = atomic_load(&s->turn);
			/* 3 in the high bits: another thread has it */
			if (!(turn >> 62) && atomic_compare_exchange_strong(&s->turn, &turn, turn | 3ul << 62)) {
				change(s, turn, state);
			}
		}
		pthread_rwlock_unlock(&running);
	}
}

static void *live(void *seed)
{
	uint64_t state = (uint64_t)seed * 0x9e3779b97f4a7c15;

	rounds(&state);
	return NULL;
}

/* Has as many threads at work at any time. The first block of a thread may make an arena: pthread_create allocates. */
static void *replace(void *seed)
{
	for (uint64_t n = (uint64_t)seed;; n += 1000) {
		pthread_t thread;

		pthread_rwlock_rdlock(&running);
		check(!pthread_create(&thread, NULL, live, (void *)n), "pthread_create");
		pthread_rwlock_unlock(&running);
		check(!pthread_join(thread, NULL), "pthread_join");
	}
	return NULL;
}

static void execute(void)
{
	char order[16];

	puts("ready");
	while (fgets(order, sizeof(order), stdin)) {
		if (order[0] == 's') {
			pthread_rwlock_wrlock(&running);
			puts("stopped");
		} else if (order[0] == 'i') {
			malloc_info(0, stdout);
			puts("done");
		} else {
			pthread_rwlock_unlock(&running);
			puts("going");
		}
	}
}

int main(int argc, char **argv)
{
	pthread_rwlockattr_t kind;
	pthread_t thread;
	int fd;

	check(argc == 5, "arguments");
	setvbuf(stdout, NULL, _IOLBF, 0);
	mode = argv[4];
	count = strtoul(argv[3], NULL, 10);
	if (*mode == 'f')
		mallopt(M_MXFAST, 160);
	fd = open(argv[1], O_RDWR);
	check(fd >= 0 && !ftruncate(fd, 2 * count * sizeof(struct slot)), argv[1]);
	slots = mmap(NULL, 2 * count * sizeof(struct slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(slots != MAP_FAILED, "mmap");
	freed = slots + count;
	pthread_rwlockattr_init(&kind);
	pthread_rwlockattr_setkind_np(&kind, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&running, &kind);
	for (long i = 1; i <= atol(argv[2]); i++)
		check(!pthread_create(&thread, NULL, replace, (void *)i), "pthread_create");
	execute();
	return 0;
}
