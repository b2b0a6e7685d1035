/* Allocates on demand, also under a seccomp filter that refuses the system call by which a probed function returns on
 * x86-64 (uretprobe). Orders, each answered by "done":
 *
 *     filter     installs the filter
 *     allocate   prints NAME OBJECTS BYTES of the functions that hold memory then
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

#define SYS_URETPROBE 335 /* arch/x86/entry/syscalls/syscall_64.tbl */

enum { OBJECTS = 500 };

/* From sizes that calloc clears by itself to those that it has memset clear, and to mappings of their own. */
static const size_t sizes[] = { 24, 100, 1000, 50000, 300000 };

static int filter(void)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_URETPROBE, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(rules) / sizeof(*rules), rules };

	return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void *volatile kept;

static size_t size_of(int i)
{
	return sizes[i % (sizeof(sizes) / sizeof(*sizes))];
}

/* Leaves memory behind that is not zero. */
__attribute__((noinline)) static void dirty(void)
{
	void *objects[OBJECTS];

	for (int i = 0; i < OBJECTS; i++) {
		objects[i] = malloc(size_of(i));
		memset(objects[i], 1, size_of(i));
	}
	for (int i = 0; i < OBJECTS; i++)
		free(objects[i]);
}

__attribute__((noinline)) static void case_malloc(void)
{
	for (int i = 0; i < OBJECTS; i++)
		kept = malloc(size_of(i));
}

__attribute__((noinline)) static void case_calloc(void)
{
	for (int i = 0; i < OBJECTS; i++)
		kept = calloc(1, size_of(i));
}

__attribute__((noinline)) static void case_realloc(void)
{
	for (int i = 0; i < OBJECTS; i++)
		kept = realloc(malloc(10), size_of(i));
}

static void allocate(void)
{
	static const char *const names[] = { "malloc", "calloc", "realloc" };
	size_t bytes = 0;

	dirty();
	case_calloc();
	case_malloc();
	case_realloc();
	for (int i = 0; i < OBJECTS; i++)
		bytes += size_of(i);
	for (int i = 0; i < 3; i++)
		printf("case_%s %d %zu\n", names[i], OBJECTS, bytes);
}

int main(void)
{
	char order[64];

	puts("ready");
	fflush(stdout);
	while (fgets(order, sizeof(order), stdin)) {
		if (!strcmp(order, "allocate\n"))
			allocate();
		else if (filter())
			perror("filter");
		puts("done");
		fflush(stdout);
	}
}
