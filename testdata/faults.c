/* Page faults, each kind by a function of its own. It prints "child PID" of a child that shares its memory by fork, and
 * "ready", and executes its orders, line by line; the truth comes in lines, then "done".
 *
 *     faults FILE           a file of 16 pages or more, written page by page
 *
 *     go                    does all kinds but copy_on_write
 *     child                 the child does copy_on_write and touch_anonymous
 *     many PAGES            touch_many() writes to so many pages that are fresh
 *     cost PAGES            touch_many() often; prints the nanoseconds for each page, in the
 * fastest round
 *
 *     faults NAME START PAGES FAULTS COPIED    NAME has touched PAGES from START on, in so many
 * faults (getrusage);
 *                                              COPIED is 1 where the pages were there and were
 * written to
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define PAGE page_size
#define HUGE (2L << 20)
#define ROUNDS 128
#define CASE __attribute__((noinline)) void
#define INLINE static inline __attribute__((always_inline)) /* so that the case itself faults */

static long page_size;

__attribute__((constructor)) static void find_page_size(void)
{
	page_size = sysconf(_SC_PAGESIZE);
}

static const char *file;
static char *inherited;
static long before;

static void check(int truth, const char *what)
{
	if (!truth) {
		perror(what);
		exit(1);
	}
}

static long faults_so_far(void)
{
	struct rusage usage;

	check(!getrusage(RUSAGE_SELF, &usage), "getrusage");
	return usage.ru_minflt + usage.ru_majflt;
}

static void tell(const char *name, char *start, long pages, int copied)
{
	long faults = faults_so_far() - before;

	printf("faults %s %lu %ld %ld %d\n", name, (unsigned long)start, pages, faults, copied);
}

static char *map(long pages, int flags, int fd)
{
	char *p = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, flags, fd, 0);

	check(p != MAP_FAILED, "mmap");
	madvise(p, pages * PAGE, MADV_NOHUGEPAGE); /* which the kernel may not have */
	before = faults_so_far();
	return p;
}

#define ANONYMOUS (MAP_PRIVATE | MAP_ANONYMOUS)

INLINE void write_to(volatile char *p, long pages)
{
	for (long i = 0; i < pages; i++)
		p[i * PAGE + 9] = 1;
}

INLINE void read_from(volatile char *p, long pages)
{
	for (long i = 0; i < pages; i++)
		(void)p[i * PAGE + 9];
}

CASE touch_anonymous(void)
{
	char *p = map(64, ANONYMOUS, -1);

	write_to(p, 64);
	tell(__func__, p, 64, 0);
}

CASE touch_shared(void)
{
	char *p = map(32, MAP_SHARED | MAP_ANONYMOUS, -1);

	write_to(p, 32);
	tell(__func__, p, 32, 0);
}

CASE touch_file(void)
{
	int fd = open(file, O_RDONLY);
	char *p = map(16, MAP_PRIVATE, fd);

	write_to(p, 16);
	tell(__func__, p, 16, 0);
	close(fd);
}

/* One fault may map several pages. */
CASE read_file(void)
{
	int fd = open(file, O_RDONLY);
	char *p = map(16, MAP_PRIVATE, fd);

	read_from(p, 16);
	tell(__func__, p, 16, 0);
	close(fd);
}

CASE read_zeros(char *p)
{
	read_from(p, 20);
	tell(__func__, p, 20, 0);
}

/* The second half of the pages that have been read. */
CASE write_over_zeros(char *p)
{
	before = faults_so_far();
	write_to(p, 10);
	tell(__func__, p, 10, 1);
}

/* The kernel's faults. */
CASE read_into(void)
{
	int fd = open("/dev/zero", O_RDONLY);
	char *p = map(32, ANONYMOUS, -1);

	check(read(fd, p, 32 * PAGE) == 32 * PAGE, "read");
	tell(__func__, p, 32, 0);
	close(fd);
}

CASE touch_huge(void)
{
	char *p = map(2 * HUGE / PAGE, ANONYMOUS, -1);

	p += -(unsigned long)p & (HUGE - 1);
	madvise(p, HUGE, MADV_HUGEPAGE);
	write_to(p, HUGE / PAGE);
	tell(__func__, p, HUGE / PAGE, 0);
}

CASE copy_on_write(void)
{
	before = faults_so_far();
	write_to(inherited, 48);
	tell(__func__, inherited, 48, 1);
}

CASE touch_many(char *p, long pages)
{
	write_to(p, pages);
}

static void many(long pages)
{
	char *p = map(pages, ANONYMOUS, -1);

	touch_many(p, pages);
	tell("touch_many", p, pages, 0);
}

static void cost(long pages)
{
	char *p = map(pages, ANONYMOUS, -1);
	struct timespec from, to;
	double least = 1e18;

	for (int i = 0; i < ROUNDS; i++) {
		double ns;

		clock_gettime(CLOCK_MONOTONIC, &from);
		touch_many(p, pages);
		clock_gettime(CLOCK_MONOTONIC, &to);
		ns = (to.tv_sec - from.tv_sec) * 1e9 + (to.tv_nsec - from.tv_nsec);
		if (ns < least)
			least = ns;
		madvise(p, pages * PAGE, MADV_DONTNEED);
	}
	munmap(p, pages * PAGE);
	printf("%f\n", least / pages);
}

static void go(void)
{
	char *zeros;

	touch_anonymous(), touch_shared(), touch_file(), read_file(), read_into(), touch_huge();
	zeros = map(20, ANONYMOUS, -1);
	read_zeros(zeros);
	write_over_zeros(zeros + 10 * PAGE);
}

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

/* Forks the child, which works once for each byte that it gets, and answers it. */
static void start_child(int *order, int *answer)
{
	int down[2], up[2];
	pid_t pid;
	char c;

	inherited = map(48, ANONYMOUS, -1);
	write_to(inherited, 48);
	check(!pipe(down) && !pipe(up), "pipe");
	pid = fork();
	check(pid >= 0, "fork");
	if (pid) {
		printf("child %d\n", pid);
		*order = down[1];
		*answer = up[0];
		return;
	}
	close(down[1]);
	while (read(down[0], &c, 1) == 1) {
		copy_on_write();
		touch_anonymous();
		fflush(stdout);
		check(write(up[1], &c, 1) == 1, "answer");
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	int order, answer;
	char line[64], c = 0;

	check(argc == 2, "FILE");
	file = argv[1];
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	start_child(&order, &answer);
	say("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "go", 2))
			go();
		else if (!strncmp(line, "child", 5))
			check(write(order, &c, 1) == 1 && read(answer, &c, 1) == 1, "child");
		else if (!strncmp(line, "many ", 5))
			many(atol(line + 5));
		else if (!strncmp(line, "cost ", 5))
			cost(atol(line + 5));
		say("done");
	}
}
