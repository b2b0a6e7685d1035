/* Memory of many kinds. When all is there it prints the truth in lines, then "ready", and waits for its input to end.
 *
 *     regions THREADS
 *
 *     region CLASS START END          a region of just these bounds
 *     inside CLASS START END          part of a region of this class
 *     arena THREAD START END          part of the arena that serves a thread
 *     stack START END GUARD           the usable part of its stack, and the bytes of the guard
 * below
 *     begin START                     a mapping has begun here
 *     chunks COUNT BYTES              all that malloc has mapped for large chunks
 *     arenas COUNT                    arenas of malloc, the main heap's included
 */
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#define PAGE 4096L
#define MIB (1L << 20)
#define MAX_THREADS 64
#define PIECES 300

static pthread_barrier_t filled, done;
static pthread_mutex_t printing = PTHREAD_MUTEX_INITIALIZER;

static void check(int truth, const char *what)
{
	if (!truth) {
		perror(what);
		exit(1);
	}
}

static void say(const char *what, char *start, long bytes)
{
	printf("%s %lx %lx\n", what, (long)start, (long)start + bytes);
}

static char *map(long bytes, int protection, int flags)
{
	char *p = mmap(NULL, bytes, protection, flags | MAP_ANONYMOUS, -1, 0);

	check(p != MAP_FAILED, "mmap");
	printf("begin %lx\n", (long)p);
	return p;
}

static void print_stack(void)
{
	pthread_attr_t attributes;
	size_t size, guard;
	void *stack;

	check(!pthread_getattr_np(pthread_self(), &attributes), "pthread_getattr_np");
	pthread_attr_getstack(&attributes, &stack, &size);
	pthread_attr_getguardsize(&attributes, &guard);
	printf("stack %lx %lx %lx\n", (long)stack, (long)stack + (long)size, (long)guard);
	pthread_attr_destroy(&attributes);
}

/* The first thread fills more than one heap. */
static void *work(void *number)
{
	long me = (long)number, pieces = me ? PIECES : 1000;
	char *p, name[32];

	snprintf(name, sizeof(name), "arena %ld", me);
	for (long i = 0; i < pieces; i++) {
		long bytes = me ? 100 + i * 37 % 4000 : 100000;

		p = malloc(bytes);
		memset(p, 0xff, bytes);
		pthread_mutex_lock(&printing);
		say(name, p, bytes);
		pthread_mutex_unlock(&printing);
	}
	pthread_mutex_lock(&printing);
	print_stack();
	pthread_mutex_unlock(&printing);
	pthread_barrier_wait(&filled);
	pthread_barrier_wait(&done);
	return NULL;
}

/* Words that malloc stores for a chunk that it has mapped: the distance of its header from the
 * start, and the usable size.
 */
static void say_chunk(char *p)
{
	char *start = p - 16 - ((size_t *)p)[-2];

	printf("begin %lx\n", (long)start);
	say("region mmapped_chunk", start, (p + malloc_usable_size(p) - start + PAGE - 1) & -PAGE);
}

static void large(long bytes, long alignment, long grown)
{
	char *p = alignment ? memalign(alignment, bytes) : malloc(bytes);

	check(p != NULL, "malloc");
	memset(p, 0xff, bytes);
	if (grown) {
		p = realloc(p, grown);
		check(p != NULL, "realloc");
	}
	say_chunk(p);
}

/* As numpy does: the advice makes three mappings of one. */
static void advised(long bytes)
{
	char *p = malloc(bytes), *first = (char *)(((long)p + PAGE) & -PAGE);

	check(!madvise(first, bytes - 3 * PAGE, MADV_HUGEPAGE), "madvise");
	memset(p, 0x02, bytes);
	say_chunk(p);
}

/* Pages that almost begin like chunks of malloc, each alone between guards. */
static void likenesses(void)
{
	static const long headers[][2] = {
		{ 0, 8 * PAGE | 3 },        { 0, 8 * PAGE | 6 },    { 0, 8 * PAGE },
		{ 0, (8 * PAGE - 32) | 2 }, { 16, 8 * PAGE | 2 },   { 0, 2 },
		{ 0, 9 * PAGE | 2 },        { 0, -PAGE | 2 },       { 1, 8 * PAGE | 2 },
		{ 0, 8 * PAGE | 10 },       { PAGE, 8 * PAGE | 2 }, { 0, 8 * PAGE + 1 },
	};

	for (unsigned i = 0; i < sizeof(headers) / sizeof(*headers); i++) {
		char *p = map(10 * PAGE, PROT_NONE, MAP_PRIVATE) + PAGE;

		check(!mprotect(p, 8 * PAGE, PROT_READ | PROT_WRITE), "mprotect");
		memset(p, 0x55, 8 * PAGE);
		memcpy(p, headers[i], 16);
		say("region anonymous", p, 8 * PAGE);
	}
}

/* 64 MiB aligned as a heap, with a header that points to no arena. */
static void false_heap(void)
{
	char *p = map(128 * MIB, PROT_NONE, MAP_PRIVATE);
	long *heap = (long *)(((long)p + 64 * MIB - 1) & -(64 * MIB));

	check(!mprotect(heap, 32 * PAGE, PROT_READ | PROT_WRITE), "mprotect");
	heap[0] = (long)heap + 64;
	heap[2] = heap[3] = 32 * PAGE;
	say("inside anonymous", (char *)heap, 32 * PAGE);
}

/* The end of a stack with a control block, but none of the fields at its end. */
static void false_stack(void)
{
	char *p = map(18 * PAGE, PROT_NONE, MAP_PRIVATE) + PAGE;
	long *block = (long *)(p + 16 * PAGE - 2304);

	check(!mprotect(p, 16 * PAGE, PROT_READ | PROT_WRITE), "mprotect");
	block[0] = block[2] = (long)block;
	say("inside anonymous", p, 16 * PAGE);
}

static void shared(void)
{
	char *p = map(5 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED);
	int fd = memfd_create("batch_17", 0), id = shmget(IPC_PRIVATE, 3 * PAGE, 0600);

	say("region shared_memory", p, 5 * PAGE);
	check(fd >= 0 && !ftruncate(fd, 7 * PAGE), "memfd_create");
	p = mmap(NULL, 7 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(p != MAP_FAILED, "mmap memfd");
	say("region shared_memory", p, 7 * PAGE);
	check(id >= 0, "shmget");
	p = shmat(id, NULL, 0);
	check(p != (void *)-1, "shmat");
	shmctl(id, IPC_RMID, NULL);
	say("region shared_memory", p, 3 * PAGE);
}

static void executable(void)
{
	char *p = map(3 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE);

	*p = 1;
	say("region generated_code", p, 3 * PAGE);
}

static void print_malloc(void)
{
	static char text[1 << 20];
	struct mallinfo2 info = mallinfo2();
	FILE *f = fmemopen(text, sizeof(text), "w");
	int arenas = 0;

	printf("chunks %ld %ld\n", (long)info.hblks, (long)info.hblkhd);
	malloc_info(0, f);
	fclose(f);
	for (char *p = text; (p = strstr(p, "<heap nr=")); p++)
		arenas++;
	printf("arenas %d\n", arenas);
}

int main(int argc, char **argv)
{
	static char out[1 << 16];
	long threads = argc > 1 ? atol(argv[1]) : 8;
	pthread_t ids[MAX_THREADS];
	char *p;

	setvbuf(stdout, out, _IOFBF, sizeof(out));
	mallopt(M_MMAP_THRESHOLD, 128 << 10);
	check(threads <= MAX_THREADS, "too many threads");
	pthread_barrier_init(&filled, NULL, threads + 1);
	pthread_barrier_init(&done, NULL, threads + 1);
	for (long i = 0; i < threads; i++)
		check(!pthread_create(&ids[i], NULL, work, (void *)i), "pthread_create");
	pthread_barrier_wait(&filled);
	for (long i = 0; i < 20; i++)
		large(MIB + i * 10000, 0, 0);
	for (long alignment = 32; alignment <= 4 * MIB; alignment *= 2)
		large(300000, alignment, 0);
	for (long alignment = 32; alignment <= 128; alignment *= 2)
		large(300000, alignment, 2 * MIB);
	large(300000, 0, 5 * MIB);
	advised(6 * MIB);
	p = map(33 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE);
	memset(p, 0x77, 33 * PAGE);
	say("region anonymous", p, 33 * PAGE);
	large(700000, 0, 0);
	shared();
	executable();
	likenesses();
	false_heap();
	false_stack();
	p = malloc(1000);
	say("inside main_heap", p, 1000);
	print_malloc();
	puts("ready");
	fflush(stdout);
	getchar();
	return 0;
}
