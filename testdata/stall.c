/* A program whose memory cannot be read: it mounts a file system of its own (FUSE) that never answers a read, and maps
 * a file of it.
 *
 *     stall links|code|locked FOLDER
 *
 * links: the dynamic linker's list of libraries leads into the file. code: the file is mapped as
 * code. locked: a thread
 * reads the file through /proc/self/mem, which locks the address space, and another waits to
 * change it. Then the
 * program prints "ready" and sleeps until it is killed. It needs root, and may block fork(2) for
 * the whole machine
 * while another program attaches uprobes: run it in a virtual machine. */
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_BYTES (1 << 20)
#define FILE_NODE 2

static void answer(int fuse, const struct fuse_in_header *in, int error, const void *data, size_t size)
{
	struct {
		struct fuse_out_header header;
		char data[256];
	} out = { { .len = sizeof(out.header) + size, .error = error, .unique = in->unique } };

	memcpy(out.data, data, size);
	if (write(fuse, &out, out.header.len) < 0)
		perror("answer");
}

static void set_attributes(struct fuse_attr *attributes, unsigned long node)
{
	attributes->ino = node;
	attributes->mode = node == FILE_NODE ? S_IFREG | 0755 : S_IFDIR | 0755;
	attributes->nlink = 1;
	attributes->size = FILE_BYTES;
}

/* Answers all requests but those to read. */
static void serve(int fuse)
{
	static char buffer[FUSE_MIN_READ_BUFFER + (1 << 17)];
	const struct fuse_in_header *in = (void *)buffer;

	while (read(fuse, buffer, sizeof(buffer)) >= (ssize_t)sizeof(*in)) {
		struct fuse_init_out init = { .major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096 };
		struct fuse_entry_out entry = { .nodeid = FILE_NODE, .attr_valid = 3600, .entry_valid = 3600 };
		struct fuse_attr_out attributes = { .attr_valid = 3600 };
		struct fuse_open_out opened = { .fh = 1 };

		set_attributes(&entry.attr, FILE_NODE);
		set_attributes(&attributes.attr, in->nodeid);
		switch (in->opcode) {
		case FUSE_INIT:
			answer(fuse, in, 0, &init, sizeof(init));
			break;
		case FUSE_LOOKUP:
			answer(fuse, in, 0, &entry, sizeof(entry));
			break;
		case FUSE_GETATTR:
			answer(fuse, in, 0, &attributes, sizeof(attributes));
			break;
		case FUSE_OPEN:
			answer(fuse, in, 0, &opened, sizeof(opened));
			break;
		case FUSE_READ:
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			break;
		default:
			answer(fuse, in, -ENOSYS, NULL, 0);
		}
	}
}

static int mount_file_system(const char *folder)
{
	int fuse = open("/dev/fuse", O_RDWR);
	char options[128], path[4096];
	pid_t parent = getpid();

	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", fuse);
	if (fuse < 0 || mount("stall", folder, "fuse", MS_NOSUID | MS_NODEV, options))
		return -1;
	if (fork() == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() == parent)
			serve(fuse);
		_exit(0);
	}
	close(fuse);
	snprintf(path, sizeof(path), "%s/file", folder);
	return open(path, O_RDONLY);
}

static void *read_own_memory(void *address)
{
	char byte;
	int memory = open("/proc/self/mem", O_RDONLY);

	return (void *)pread(memory, &byte, 1, (off_t)(unsigned long)address);
}

static void *change_address_space(void *unused)
{
	sleep(5); /* until the other thread has the lock */
	return mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(int argc, char **argv)
{
	const char *mode = argc > 2 ? argv[1] : "";
	int file = argc > 2 ? mount_file_system(argv[2]) : -1;
	int protection = strcmp(mode, "code") ? PROT_READ : PROT_READ | PROT_EXEC;
	/* No page of its own may be missing once the address space is locked. */
	int locked = mlockall(MCL_CURRENT);
	void *mapped = mmap(NULL, FILE_BYTES, protection, MAP_PRIVATE, file, 0);
	pthread_t thread;

	if (file < 0 || locked || mapped == MAP_FAILED) {
		perror("stall");
		return 1;
	}
	if (!strcmp(mode, "links")) {
		struct link_map *last = _r_debug.r_map;

		while (last->l_next)
			last = last->l_next;
		last->l_next = mapped;
	}
	if (!strcmp(mode, "locked")) {
		/* Reading begins last: starting a thread maps its stack. */
		pthread_create(&thread, NULL, change_address_space, NULL);
		pthread_create(&thread, NULL, read_own_memory, mapped);
		sleep(6);
	}
	if (write(1, "ready\n", 6) == 6)
		pause();
	return 1;
}
