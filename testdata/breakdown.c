/* Memory of every kind, each by a function of its own, on command. It speaks by lines: prints "ready", executes one
 * order a line, prints the truth, then "done", and exits at the end of its input. An order is the
 * name of a function
 * (CASE), with a path where it is about a file; "info" prints malloc_info(); "start_child fork"
 * and "start_child run"
 * start one, which prints "child PID", and executes the rest of a line after "child".
 *
 *     truth NAME KIND BYTES                 resident bytes of function NAME, or of the file NAME
 *
 * Truth about memory that was written whole is arithmetic; else it is the report of
 * /proc/self/pagemap on the object's own bytes.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE page_size
#define MIB (1L << 20)
#define CASE __attribute__((noinline)) void
#define WRITABLE (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

static long page_size;

__attribute__((constructor)) static void find_page_size(void)
{
	page_size = sysconf(_SC_PAGESIZE);
}

static char *heap_start;

static void check(int holds, const char *what)
{
	if (!holds) {
		perror(what);
		exit(1);
	}
}

static void truth(const char *name, const char *kind, long bytes)
{
	printf("truth %s %s %ld\n", name, kind, bytes);
}

/* How many of the bytes at p lie in pages that are in memory. */
static long resident(const char *p, long bytes)
{
	static uint64_t entries[512];
	uintptr_t at = (uintptr_t)p, end = at + bytes;
	int pages = open("/proc/self/pagemap", O_RDONLY);
	long sum = 0;

	check(pages >= 0, "pagemap");
	while (at < end) {
		long n = pread(pages, entries, sizeof(entries), at / PAGE * 8) / 8;

		check(n > 0, "read pagemap");
		for (long i = 0; i < n && at < end; i++) {
			uintptr_t next = (at / PAGE + 1) * PAGE;

			next = next < end ? next : end;
			if (entries[i] >> 63)
				sum += next - at;
			at = next;
		}
	}
	close(pages);
	return sum;
}

/* Inlined, so that the function under test is the one that touches. */
static inline __attribute__((always_inline)) void touch(volatile char *p, long bytes)
{
	for (long i = 0; i < bytes; i += PAGE)
		p[i] = 1;
}

/* Inlined, so that the caller of malloc is the function under test. */
static inline __attribute__((always_inline)) char *allocate(long bytes, long touched)
{
	char *p = malloc(bytes);

	check(p != NULL, "malloc");
	memset(p, 1, touched);
	__asm__ volatile("" : : "r"(p) : "memory");
	return p;
}

static inline __attribute__((always_inline)) char *map(long bytes, int protection, int flags, int fd)
{
	char *p = mmap(NULL, bytes, protection, flags, fd, 0);

	check(p != MAP_FAILED, "mmap");
	return p;
}

/* A size from 4 KB to 100 KB, the same ones in each run. */
static long some_size(unsigned int *seed)
{
	return 4000 + rand_r(seed) % 96000;
}

/* 160,000 objects of 210 bytes, each of which takes a chunk of 224. */
CASE heap_small(void)
{
	const long objects = 160000, bytes = 210;
	long taken = 0;

	for (long i = 0; i < objects; i++)
		taken += malloc_usable_size(allocate(bytes, bytes)) + 8;
	truth(__func__, "heap", objects * bytes);
	truth(__func__, "metadata", taken - objects * bytes);
}

/* Above the threshold of mmap, touched but for the last MiB. */
CASE heap_large(void)
{
	for (int i = 0; i < 8; i++)
		allocate(3 * MIB, 2 * MIB);
	truth(__func__, "heap", 8 * 2 * MIB);
}

/* Below that threshold, on fresh memory at the end of the heap. */
CASE heap_partly(void)
{
	static char *objects[200];
	long sum = 0;

	for (int i = 0; i < 200; i++)
		objects[i] = allocate(100 << 10, 40 << 10);
	for (int i = 0; i < 200; i++)
		sum += resident(objects[i], 100 << 10);
	truth(__func__, "heap", sum);
}

CASE heap_reserve(void)
{
	allocate(1L << 30, 0);
	truth(__func__, "heap", 0);
}

CASE map_reserve(void)
{
	map(4L << 30, WRITABLE, PRIVATE | MAP_NORESERVE, -1);
	truth(__func__, "mmap", 0);
}

/* More than is scanned where the kernel has no PAGEMAP_SCAN. */
CASE map_beyond(void)
{
	map(128L << 30, PROT_NONE, PRIVATE | MAP_NORESERVE, -1);
	truth(__func__, "mmap", 0);
}

/* 4 TiB, of which 16 MiB are touched. */
CASE map_vast(void)
{
	touch(map(4L << 40, WRITABLE, PRIVATE | MAP_NORESERVE, -1), 16 * MIB);
	truth(__func__, "mmap", 16 * MIB);
}

/* The remains of fragments: requested bytes that are kept, chunks that are kept, chunks that were
 * freed. */
struct fragments {
	long kept, chunks, freed;
};

/* Fills so many bytes with objects and frees all but every tenth and the last. Inlined as allocate() is. */
static inline __attribute__((always_inline)) struct fragments fragment(long bytes)
{
	struct fragments sum = { 0 };
	unsigned int seed = 1;
	char **objects = mmap(NULL, 2 * MIB, WRITABLE, PRIVATE, -1, 0);
	long n = 0;

	for (long total = 0; total < bytes; n++) {
		long size = some_size(&seed);

		objects[n] = allocate(size, size);
		total += size;
		if (n % 10 == 0 || total >= bytes) {
			sum.kept += size;
			sum.chunks += malloc_usable_size(objects[n]) + 8;
			objects[n] = NULL;
		}
	}
	for (long i = 0; i < n; i++) {
		sum.freed += objects[i] ? malloc_usable_size(objects[i]) + 8 : 0;
		free(objects[i]);
	}
	munmap(objects, 2 * MIB);
	return sum;
}

static struct fragments fragments;

/* mallinfo2() has to agree with the arithmetic; keepcost is the untouched end of the heap. */
CASE heap_fragment(void)
{
	struct mallinfo2 before = mallinfo2(), after;
	long more;

	fragments = fragment(64 * MIB);
	after = mallinfo2();
	more = (after.fordblks - after.keepcost) - (before.fordblks - before.keepcost);
	check(labs(more - fragments.freed) < 256 << 10, "mallinfo2");
	truth(__func__, "heap", fragments.kept);
	truth("free", "retained", fragments.freed);
}

/* The rest belongs to pages that are kept for their other end. */
CASE heap_trim(void)
{
	check(malloc_trim(0), "malloc_trim");
	truth("heap_fragment", "heap", fragments.kept);
	truth("free", "retained", resident(heap_start, (char *)sbrk(0) - heap_start) - fragments.chunks);
}

static pthread_barrier_t begun;
static long thread_sum[64];

CASE stay(void)
{
	pthread_barrier_wait(&begun);
	for (;;)
		pause();
}

static void start(int threads, void *(*run)(void *), long stack)
{
	pthread_attr_t attributes;
	pthread_t thread;

	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, stack);
	pthread_barrier_init(&begun, NULL, threads + 1);
	for (long i = 0; i < threads; i++)
		check(!pthread_create(&thread, &attributes, run, (void *)i), "pthread_create");
	pthread_barrier_wait(&begun);
}

CASE heap_in_thread(long thread)
{
	struct fragments left = fragment((thread + 1) * 4 * MIB);

	thread_sum[thread] = left.kept;
	thread_sum[thread + 8] = left.freed;
}

static void *fragmenter(void *thread)
{
	heap_in_thread((long)thread);
	stay();
	return NULL;
}

/* The arena of each of 8 threads is fragmented, each more than the one before. */
CASE arenas(void)
{
	long kept = 0;

	start(8, fragmenter, 256 << 10);
	for (int i = 0; i < 8; i++) {
		kept += thread_sum[i];
		truth("arena", "retained", thread_sum[i + 8]);
	}
	truth("heap_in_thread", "heap", kept);
}

CASE info(void)
{
	malloc_info(0, stdout);
}

CASE touch_stack(void)
{
	volatile char room[MIB];

	touch(room, MIB);
	__asm__ volatile("" : : "r"(room) : "memory");
	stay();
}

static void *deep(void *unused)
{
	touch_stack();
	return unused;
}

CASE stacks(void)
{
	start(20, deep, 2 * MIB);
	truth("touch_stack", "stack", 20 * MIB);
}

static char *discarded;

CASE map_touched(void)
{
	discarded = map(32 * MIB, WRITABLE, PRIVATE, -1);
	touch(discarded, 32 * MIB);
	truth(__func__, "mmap", 32 * MIB);
}

CASE discard(void)
{
	check(!madvise(discarded + 4 * MIB, 24 * MIB, MADV_DONTNEED), "madvise");
	truth("map_touched", "mmap", 8 * MIB);
}

CASE page_out(void)
{
	check(!madvise(discarded, 16 * MIB, MADV_PAGEOUT), "madvise");
	truth("map_touched", "mmap", resident(discarded, 32 * MIB));
}

static int open_file(const char *path, int flags)
{
	int fd = open(path, flags, 0600);

	check(fd >= 0, path);
	return fd;
}

/* All of a file of 8 MiB is read. */
CASE file_read(const char *path)
{
	volatile char *p = map(8 * MIB, PROT_READ, MAP_PRIVATE, open_file(path, O_RDONLY));

	for (long i = 0; i < 8 * MIB; i += PAGE)
		(void)p[i];
	truth(path, "file", 8 * MIB);
}

CASE file_shared(const char *path)
{
	touch(map(8 * MIB, WRITABLE, MAP_SHARED, open_file(path, O_RDWR)), 8 * MIB);
	truth(path, "file", 8 * MIB);
}

/* Written pages of a private mapping are copies: anonymous memory, and not the file's. */
CASE file_written(const char *path)
{
	volatile char *p = map(8 * MIB, WRITABLE, MAP_PRIVATE, open_file(path, O_RDONLY));

	for (long i = 0; i < 8 * MIB; i += PAGE)
		(void)p[i];
	touch(p, 2 * MIB);
	truth(path, "file", 6 * MIB);
	truth(__func__, "anonymous", 2 * MIB);
}

CASE jit_at_once(void)
{
	touch(map(4 * MIB, WRITABLE | PROT_EXEC, PRIVATE, -1), 4 * MIB);
	truth(__func__, "jit", 4 * MIB);
}

CASE jit_protected(void)
{
	char *p = map(4 * MIB, WRITABLE, PRIVATE, -1);

	touch(p, 4 * MIB);
	check(!mprotect(p, 4 * MIB, PROT_READ | PROT_EXEC), "mprotect");
	truth(__func__, "jit", 4 * MIB);
}

static char *untouched, *given, *small[4000], *large[16];
static long smalls;

CASE before(void)
{
	unsigned int seed = 1;

	touch(map(16 * MIB, WRITABLE, PRIVATE, -1), 16 * MIB);
	given = map(24 * MIB, WRITABLE, PRIVATE, -1);
	touch(given, 24 * MIB);
	untouched = map(32 * MIB, WRITABLE, PRIVATE, -1);
	for (long total = 0; total < 16 * MIB; smalls++) {
		long size = some_size(&seed);

		small[smalls] = allocate(size, size);
		total += size;
	}
	for (int i = 0; i < 16; i++)
		large[i] = allocate(MIB, MIB);
	truth(__func__, "before-tracing", (16 + 24 + 16 + 16) * MIB);
}

/* Every second of the small objects, whose memory stays as it was, and half of the large ones, which the allocator
 * unmaps. */
CASE free_before(void)
{
	for (long i = 0; i < smalls; i += 2)
		free(small[i]);
	for (int i = 0; i < 8; i++)
		free(large[i]);
	truth("before", "before-tracing", (16 + 24 + 16 + 8) * MIB);
}

/* Of 24 MiB, 12 are given back and 4 of these are touched again. */
CASE touch_again(void)
{
	check(!madvise(given, 12 * MIB, MADV_DONTNEED), "madvise");
	touch(given, 4 * MIB);
	truth("before", "before-tracing", (24 - 12) * MIB);
	truth(__func__, "older", 4 * MIB);
}

/* Another mapping at the place of one from before. */
CASE map_anew(void)
{
	check(!munmap(given, 24 * MIB), "munmap");
	check(mmap(given, 24 * MIB, WRITABLE, PRIVATE | MAP_FIXED, -1, 0) == given, "mmap");
	touch(given, 24 * MIB);
	truth("before", "before-tracing", (16 + 16 + 16) * MIB);
	truth(__func__, "mmap", 24 * MIB);
}

CASE touch_first(void)
{
	touch(untouched, 32 * MIB);
	truth(__func__, "older", 32 * MIB);
}

static char *inherited;

CASE hold_inherited(void)
{
	inherited = allocate(64 * MIB, 64 * MIB);
	truth(__func__, "heap", 64 * MIB);
}

CASE write_inherited(void)
{
	memset(inherited, 2, 16 * MIB);
	truth(__func__, "cow", 16 * MIB);
}

CASE share_memfd(void)
{
	int fd = memfd_create("breakdown", 0);

	check(fd >= 0 && !ftruncate(fd, 16 * MIB), "memfd_create");
	touch(map(16 * MIB, WRITABLE, MAP_SHARED, fd), 16 * MIB);
	truth("breakdown", "shmem", 16 * MIB);
}

CASE share_file(const char *path)
{
	int fd = open_file(path, O_RDWR | O_CREAT);

	check(!ftruncate(fd, 16 * MIB), "ftruncate");
	touch(map(16 * MIB, WRITABLE, MAP_SHARED, fd), 16 * MIB);
	truth(path, "shmem", 16 * MIB);
}

static int orders_of_child = -1; /* where it gets its orders */
static int passed_on;            /* the child reports that the order is done */

/* Starts a child that executes as its parent does, in a program of its own if ordered "run". The child prints who it
 * is, and that the order is done, or as a program "ready". */
CASE start_child(const char *how)
{
	int orders[2];
	pid_t pid;

	check(!pipe2(orders, O_CLOEXEC), "pipe2");
	pid = fork();
	check(pid >= 0, "fork");
	passed_on = pid != 0;
	if (pid != 0) {
		close(orders[0]);
		orders_of_child = orders[1];
		return;
	}
	dup2(orders[0], 0);
	close(orders[1]);
	printf("child %d\n", getpid());
	fflush(stdout);
	if (!strcmp(how, "run"))
		check(!execl("/proc/self/exe", "breakdown", NULL), "exec");
}

CASE child(const char *order)
{
	check(dprintf(orders_of_child, "%s\n", order) > 0, "child");
	passed_on = 1;
}

static const struct {
	const char *name;
	void (*run)(void);
} cases[] = {
	{ "heap_small", heap_small },
	{ "heap_large", heap_large },
	{ "heap_partly", heap_partly },
	{ "heap_reserve", heap_reserve },
	{ "map_reserve", map_reserve },
	{ "map_vast", map_vast },
	{ "map_beyond", map_beyond },
	{ "heap_fragment", heap_fragment },
	{ "heap_trim", heap_trim },
	{ "arenas", arenas },
	{ "info", info },
	{ "stacks", stacks },
	{ "map_touched", map_touched },
	{ "discard", discard },
	{ "page_out", page_out },
	{ "jit_at_once", jit_at_once },
	{ "jit_protected", jit_protected },
	{ "before", before },
	{ "free_before", free_before },
	{ "touch_again", touch_again },
	{ "touch_first", touch_first },
	{ "map_anew", map_anew },
	{ "hold_inherited", hold_inherited },
	{ "write_inherited", write_inherited },
	{ "share_memfd", share_memfd },
};

static const struct {
	const char *name;
	void (*run)(const char *);
} cases_with_word[] = {
	{ "file_read", file_read },   { "file_shared", file_shared }, { "file_written", file_written },
	{ "share_file", share_file }, { "start_child", start_child }, { "child", child },
};

static void execute(const char *order, const char *word)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (!strcmp(order, cases[i].name))
			return cases[i].run();
	for (size_t i = 0; i < sizeof(cases_with_word) / sizeof(*cases_with_word); i++)
		if (!strcmp(order, cases_with_word[i].name))
			return cases_with_word[i].run(word);
	check(0, order);
}

int main(void)
{
	char line[4096];

	heap_start = sbrk(0);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		char *space;

		line[strcspn(line, "\n")] = 0;
		space = strchr(line, ' ');
		if (space)
			*space = 0;
		passed_on = 0;
		execute(line, space ? space + 1 : "");
		if (!passed_on)
			puts("done");
		fflush(stdout);
	}
	return 0;
}
