// Moves into a cgroup, takes memory of one kind, and holds it until its input ends:
// container CGROUP KIND MEBIBYTES FOLDER
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static long bytes;
static const char *folder;
static char path[4096];

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

// Writes a file of the size, in blocks of a mebibyte.
static void fill(int fd)
{
	static char block[1 << 20];
	memset(block, 1, sizeof block);
	for (long n = 0; n < bytes; n += sizeof block)
		check(write(fd, block, sizeof block) == sizeof block, "write");
}

static int make_file(void)
{
	snprintf(path, sizeof path, "%s/allocscope-test-XXXXXX", folder);
	int fd = mkstemp(path);
	check(fd >= 0, "mkstemp");
	return fd;
}

static void anonymous(void)
{
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	check(memory != MAP_FAILED, "mmap");
	memset(memory, 1, bytes);
}

static void forked(void)
{
	anonymous();
	int ends[2];
	check(pipe(ends) == 0, "pipe");
	if (fork() == 0) {
		close(ends[1]);
		(void)!read(ends[0], path, 1); // until the parent ends
		_exit(0);
	}
}

static void open_memfd(void)
{
	fill(memfd_create("tensors", 0));
}

static void small_memfds(void)
{
	long all = bytes;
	for (bytes = 1 << 18; all > 0; all -= bytes) {
		int fd = memfd_create("batch", 0);
		char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		check(ftruncate(fd, bytes) == 0 && memory != MAP_FAILED, "memfd");
		memset(memory, 1, bytes);
		munmap(memory, bytes);
	}
}

static void mapped_memfd(void)
{
	int fd = memfd_create("batches", 0);
	check(ftruncate(fd, bytes) == 0, "ftruncate");
	char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	check(memory != MAP_FAILED, "mmap");
	memset(memory, 1, bytes);
	close(fd);
}

static void tmpfs(void)
{
	int fd = make_file();
	fill(fd);
	close(fd);
}

static void cache(void)
{
	int fd = make_file();
	unlink(path);
	fill(fd);
	fsync(fd);
}

// An inode of a file in RAM and its name take about a kibibyte of the kernel's memory.
static void names(void)
{
	for (long i = 0; i < bytes >> 11; i++) {
		snprintf(path, sizeof path, "%s/%ld", folder, i);
		int fd = open(path, O_CREAT | O_WRONLY, 0600);
		check(fd >= 0, "open");
		close(fd);
	}
}

// Reads nothing of the buffers.
static void sockets(void)
{
	enum { part = 16 << 10, most = 100 };
	static char block[part];
	for (int i = 0; i < most; i++) {
		int ends[2];
		check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "socketpair");
		while (write(ends[0], block, part) == part)
			;
	}
}

static const struct {
	const char *name;
	void (*take)(void);
} kinds[] = {
	{ "anonymous", anonymous },       { "forked", forked },
	{ "memfd", open_memfd },          { "small memfds", small_memfds },
	{ "mapped memfd", mapped_memfd }, { "tmpfs", tmpfs },
	{ "page cache", cache },          { "names", names },
	{ "sockets", sockets },
};

int main(int argc, char **argv)
{
	check(argc == 5, "arguments");
	snprintf(path, sizeof path, "%s/cgroup.procs", argv[1]);
	FILE *procs = fopen(path, "w");
	check(procs && fprintf(procs, "%d", getpid()) > 0 && fclose(procs) == 0, "cgroup.procs");
	bytes = atol(argv[3]) << 20;
	folder = argv[4];
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(kinds[i].name, argv[2]) == 0)
			kinds[i].take();
	puts("ready");
	fflush(stdout);
	(void)!read(0, path, 1);
}
