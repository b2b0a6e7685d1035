/* Direct mappings, each by a function of its own. It prints "ready"; after "go" it does them all and prints the truth
 * in lines, then "done".
 *
 *     mappings FILE                                   a file of 16 pages or more to map
 *
 *     holds NAME KIND OBJECTS TOUCHED MAPPED          mappings made there: pieces, bytes touched,
 * bytes ever mapped
 *     releases CALL BYTES                             bytes given back
 *     reserved BYTES                                  all that is mapped now, but for malloc's
 * mappings
 *     allocator BYTES                                 mapped by malloc and sbrk
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE page_size
#define CASE __attribute__((noinline)) void

static long page_size;

__attribute__((constructor)) static void find_page_size(void)
{
	page_size = sysconf(_SC_PAGESIZE);
}

static long reserved;
static const char *file;

static void check(int truth, const char *what)
{
	if (!truth) {
		perror(what);
		exit(1);
	}
}

static void holds(const char *name, const char *kind, int objects, long touched, long mapped)
{
	printf("holds %s %s %d %ld %ld\n", name, kind, objects, touched * PAGE, mapped * PAGE);
}

static void releases(const char *call, long bytes)
{
	printf("releases %s %ld\n", call, bytes);
}

/* Inlined, so that the caller of mmap is the function under test. */
static inline __attribute__((always_inline)) char *map(long bytes, int protection, int flags, int fd)
{
	char *p = mmap(NULL, bytes, protection, flags, fd, 0);

	check(p != MAP_FAILED, "mmap");
	reserved += (bytes + PAGE - 1) / PAGE * PAGE;
	return p;
}

static void touch(volatile char *p, long from, long pages)
{
	for (long i = from; i < from + pages; i++)
		p[i * PAGE] = 1;
}

static int shared_file(const char *path, int flags)
{
	int fd = open(path, O_RDWR | flags, 0600);

	check(fd >= 0, path);
	return fd;
}

#define WRITABLE (PROT_READ | PROT_WRITE)
#define PRIVATE (MAP_PRIVATE | MAP_ANONYMOUS)

CASE map_before_tracing(void)
{
	touch(map(50 * PAGE, WRITABLE, PRIVATE, -1), 0, 50);
}

CASE map_touched(void)
{
	touch(map(100 * PAGE, WRITABLE, PRIVATE, -1), 3, 37);
	holds(__func__, "mmap", 1, 37, 100);
}

CASE map_odd_length(void)
{
	touch(map(2 * PAGE + 1, WRITABLE, PRIVATE, -1), 2, 1);
	holds(__func__, "mmap", 1, 1, 3);
}

CASE map_many(void)
{
	for (int i = 0; i < 20; i++)
		touch(map((i + 1) * PAGE, WRITABLE, PRIVATE, -1), 0, 1);
	holds(__func__, "mmap", 20, 20, 210);
}

CASE map_reserved(void)
{
	map(4L << 30, PROT_NONE, PRIVATE | MAP_NORESERVE, -1);
	holds(__func__, "mmap", 1, 0, (4L << 30) / PAGE);
}

CASE map_only_read(void)
{
	volatile char *p = map(10 * PAGE, WRITABLE, PRIVATE, -1);

	for (int i = 0; i < 10; i++)
		(void)p[i * PAGE];
	holds(__func__, "mmap", 1, 0, 10);
}

CASE map_guarded(void)
{
	char *p = map(10 * PAGE, WRITABLE, PRIVATE | MAP_STACK, -1);

	check(!mprotect(p, PAGE, PROT_NONE), "mprotect");
	touch(p, 1, 2);
	holds(__func__, "stack", 1, 2, 10);
}

CASE map_over_another(void)
{
	char *p = map(10 * PAGE, WRITABLE, PRIVATE, -1);

	touch(p, 0, 10);
	check(mmap(p + 4 * PAGE, 2 * PAGE, WRITABLE, PRIVATE | MAP_FIXED, -1, 0) == p + 4 * PAGE, "mmap MAP_FIXED");
	touch(p, 4, 1);
	holds(__func__, "mmap", 3, 9, 12);
}

CASE map_file_privately(void)
{
	int fd = open(file, O_RDONLY);

	touch(map(16 * PAGE, WRITABLE, MAP_PRIVATE, fd), 0, 5);
	close(fd);
	holds(__func__, "file", 1, 5, 16);
}

CASE map_file_shared(void)
{
	int fd = shared_file(file, 0);

	touch(map(16 * PAGE, WRITABLE, MAP_SHARED, fd), 8, 4);
	close(fd);
	holds(__func__, "file", 1, 4, 16);
}

CASE map_shared(void)
{
	touch(map(30 * PAGE, WRITABLE, MAP_SHARED | MAP_ANONYMOUS, -1), 0, 7);
	holds(__func__, "shmem", 1, 7, 30);
}

CASE map_memfd(void)
{
	int fd = memfd_create("allocscope-test", 0);

	check(fd >= 0 && !ftruncate(fd, 40 * PAGE), "memfd_create");
	touch(map(40 * PAGE, WRITABLE, MAP_SHARED, fd), 1, 11);
	close(fd);
	holds(__func__, "shmem", 1, 11, 40);
}

CASE map_dev_shm(void)
{
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/dev/shm/allocscope-test-%d", getpid());
	fd = shared_file(path, O_CREAT | O_EXCL);
	unlink(path);
	check(!ftruncate(fd, 20 * PAGE), "ftruncate");
	touch(map(20 * PAGE, WRITABLE, MAP_SHARED, fd), 0, 13);
	close(fd);
	holds(__func__, "shmem", 1, 13, 20);
}

CASE map_and_unmap(void)
{
	char *p = map(2000 * PAGE, WRITABLE, PRIVATE, -1);

	touch(p, 0, 2000);
	munmap(p, 2000 * PAGE);
	reserved -= 2000 * PAGE;
	holds(__func__, "mmap", 0, 0, 2000);
	releases("munmap", 2000 * PAGE);
}

__attribute__((noinline)) char *map_for_thirds(void)
{
	char *p = map(30 * PAGE, WRITABLE, PRIVATE, -1);

	touch(p, 0, 30);
	holds(__func__, "mmap", 2, 20, 30);
	return p;
}

CASE unmap_middle_third(void)
{
	munmap(map_for_thirds() + 10 * PAGE, 10 * PAGE);
	reserved -= 10 * PAGE;
	releases("munmap", 10 * PAGE);
}

__attribute__((noinline)) char *map_for_growth(void)
{
	char *p = map(10 * PAGE, WRITABLE, PRIVATE, -1);

	touch(p, 0, 10);
	holds(__func__, "mmap", 1, 10, 10);
	return p;
}

/* By syscall(): the C library's mremap keeps its arguments on the stack. */
CASE grow_by_mremap(void)
{
	char *p = map_for_growth();

	p = (char *)syscall(SYS_mremap, p, 10 * PAGE, 1000 * PAGE, MREMAP_MAYMOVE);
	check(p != MAP_FAILED, "mremap");
	touch(p, 10, 6);
	reserved += 990 * PAGE;
	holds(__func__, "mmap", 1, 6, 990);
}

__attribute__((noinline)) char *map_for_discard(void)
{
	char *p = map(50 * PAGE, WRITABLE, PRIVATE, -1);

	touch(p, 0, 50);
	holds(__func__, "mmap", 1, 30, 50);
	return p;
}

CASE discard_by_madvise(void)
{
	check(!madvise(map_for_discard() + 10 * PAGE, 20 * PAGE, MADV_DONTNEED), "madvise");
	releases("madvise", 20 * PAGE);
}

__attribute__((noinline)) char *map_for_hole(void)
{
	char *p = map(30 * PAGE, WRITABLE, PRIVATE, -1);

	touch(p, 0, 30);
	holds(__func__, "mmap", 2, 0, 30);
	return p;
}

/* The kernel releases the mapped parts of a range, and returns an error if that is not all. */
CASE discard_over_hole(void)
{
	char *p = map_for_hole(), *hole = p + 10 * PAGE;

	munmap(hole, 10 * PAGE);
	reserved -= 10 * PAGE;
	releases("munmap", 10 * PAGE);
	check(madvise(p, 30 * PAGE, MADV_DONTNEED) && errno == ENOMEM, "madvise");
	check(madvise(hole, 10 * PAGE, MADV_DONTNEED) && errno == ENOMEM, "madvise");
	check(madvise(p, 10 * PAGE, 12345) && errno == EINVAL, "madvise");
	releases("madvise", 20 * PAGE);
}

/* Its call of malloc leaves a return address on the stack. */
__attribute__((noinline)) void *allocate_small(void)
{
	char room[512];
	void *p = malloc(24);

	__asm__ volatile("" : : "r"(p), "r"(room) : "memory");
	return p;
}

/* The return address of an earlier malloc is in the room, which nobody writes. */
CASE map_over_old_return(void)
{
	char room[1024];

	__asm__ volatile("" : : "r"(room) : "memory");
	touch(map(7 * PAGE, WRITABLE, PRIVATE, -1), 0, 5);
	__asm__ volatile("" : : "r"(room) : "memory");
	holds(__func__, "mmap", 1, 5, 7);
}

/* Jumps to mmap: its caller is the caller of mmap. */
__attribute__((noinline)) void *map_four(size_t bytes)
{
	return mmap(NULL, bytes, WRITABLE, PRIVATE, -1, 0);
}

/* Both calls are made with the same stack pointer, and have the same return address. */
CASE map_or_allocate(void)
{
	void *(*volatile functions[])(size_t) = { malloc, map_four, malloc, map_four, malloc, map_four };

	for (int i = 0; i < 6; i++)
		touch(functions[i](4 * PAGE), 1, 2);
	reserved += 12 * PAGE;
	holds(__func__, "mmap", 3, 6, 12);
}

static char *volatile protected_page;

__attribute__((noinline)) void on_fault(int number)
{
	(void)number;
	mprotect(protected_page, PAGE, WRITABLE);
	touch(map(9 * PAGE, WRITABLE, PRIVATE, -1), 0, 4);
}

/* malloc reads the free block that it takes, and is interrupted there. */
static void map_while_malloc_runs(void)
{
	struct sigaction action = { .sa_handler = on_fault }, before;
	void *p;

	protected_page = memalign(PAGE, 64);
	check(!sigaction(SIGSEGV, &action, &before), "sigaction");
	free(protected_page);
	check(!mprotect(protected_page, PAGE, PROT_NONE), "mprotect");
	p = malloc(64);
	__asm__ volatile("" : : "r"(p) : "memory");
	*(volatile char *)protected_page; /* other mallocs do not read the block */
	check(!sigaction(SIGSEGV, &before, NULL), "sigaction");
	holds("on_fault", "mmap", 1, 4, 9);
}

/* malloc and the program map in turn, at all depths of the stack. */
__attribute__((noinline)) void map_in_turn(int depth)
{
	char *p = malloc(1 << 20);

	touch(map(3 * PAGE, WRITABLE, PRIVATE, -1), 0, 1);
	if (depth > 1)
		map_in_turn(depth - 1);
	__asm__ volatile("" : : "r"(p) : "memory");
}

static void map_beside_malloc(void)
{
	long before = mallinfo2().hblkhd;

	allocate_small();
	map_over_old_return();
	map_or_allocate();
	map_while_malloc_runs();
	map_in_turn(20);
	holds("map_in_turn", "mmap", 20, 20, 60);
	printf("allocator %ld\n", (long)mallinfo2().hblkhd - before);
}

static void *kept(void *p)
{
	touch(p, 0, (1 << 20) / PAGE);
	__asm__ volatile("" : : "r"(p) : "memory");
	return p;
}

/* Memory of the allocator: its blocks are in the live map, and count once. mallinfo2() knows its
 * mappings. */
CASE allocate_by_malloc(void)
{
	long before = mallinfo2().hblkhd;
	void *p;

	kept(malloc(1 << 20));
	kept(calloc(1, 1 << 20));
	kept(realloc(kept(malloc(1 << 20)), 8 << 20)); /* by mremap */
	check(!posix_memalign(&p, 64, 1 << 20), "posix_memalign");
	kept(p);
	printf("allocator %ld\n", (long)mallinfo2().hblkhd - before);
	p = sbrk(64 * PAGE);
	check(p != (void *)-1, "sbrk");
	touch(p, 0, 64);
	printf("allocator %ld\n", 64 * PAGE);
}

static void all_cases(void)
{
	map_touched(), map_odd_length(), map_many(), map_reserved(), map_only_read(), map_guarded(), map_over_another();
	map_file_privately(), map_file_shared(), map_shared(), map_memfd(), map_dev_shm();
	map_and_unmap(), unmap_middle_third(), grow_by_mremap(), discard_by_madvise(), discard_over_hole();
	allocate_by_malloc();
	map_beside_malloc();
	printf("reserved %ld\n", reserved);
}

static void wait_for_line(void)
{
	char line[64];

	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	file = argc > 1 ? argv[1] : "/dev/null";
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* a huge page would touch 512 at once */
	map_before_tracing();
	reserved = 0;
	say("ready");
	wait_for_line();
	all_cases();
	say("done");
	wait_for_line();
}
