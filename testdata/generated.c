/* Generates code that calls malloc, and lists it in a perf map, as a runtime with a JIT compiler
 * does. Between two generated functions it calls a function of this file that has no unwind
 * information and keeps a frame pointer, as the built-in functions of V8 do. It prints "ready", and
 * executes one order a line:
 *
 *     call N      N times, allocates SIZE bytes: main > call_generated > outer > built_in >
 *                 inner > malloc
 *     list A,B    lists the outer function by the name A, and the inner one by B
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 208, SLOT = 256 };

/* A function with a frame pointer that calls its first argument with the other three. */
#if defined(__x86_64__)
static const uint8_t code[] = {
	0x55,             /* push %rbp */
	0x48, 0x89, 0xe5, /* mov %rsp, %rbp */
	0x48, 0x89, 0xf8, /* mov %rdi, %rax */
	0x48, 0x89, 0xf7, /* mov %rsi, %rdi */
	0x48, 0x89, 0xd6, /* mov %rdx, %rsi */
	0x48, 0x89, 0xca, /* mov %rcx, %rdx */
	0xff, 0xd0,       /* call *%rax */
	0x5d, 0xc3,       /* pop %rbp; ret */
};

__asm__(".text\n.globl built_in\n.type built_in, @function\nbuilt_in:\n"
	"push %rbp\nmov %rsp, %rbp\nmov %rdi, %rax\n"
	"mov %rsi, %rdi\nmov %rdx, %rsi\nmov %rcx, %rdx\n"
	"call *%rax\npop %rbp\nret\n.size built_in, . - built_in\n");
#else
static const uint32_t code[] = {
	0xa9bf7bfd, /* stp x29, x30, [sp, #-16]! */
	0x910003fd, /* mov x29, sp */
	0xaa0003e9, /* mov x9, x0 */
	0xaa0103e0, /* mov x0, x1 */
	0xaa0203e1, /* mov x1, x2 */
	0xaa0303e2, /* mov x2, x3 */
	0xd63f0120, /* blr x9 */
	0xa8c17bfd, /* ldp x29, x30, [sp], #16 */
	0xd65f03c0, /* ret */
};

__asm__(".text\n.globl built_in\n.type built_in, %function\nbuilt_in:\n"
	"stp x29, x30, [sp, #-16]!\nmov x29, sp\nmov x9, x0\nmov x0, x1\nmov x1, x2\nmov x2, x3\n"
	"blr x9\nldp x29, x30, [sp], #16\nret\n.size built_in, . - built_in\n");
#endif
extern char built_in[];

static uint8_t *memory;
static char path[64];
static void *volatile kept;

static void *address(size_t slot)
{
	return memory + slot * SLOT;
}

/* outer calls built_in, which calls inner, which calls malloc. */
__attribute__((noinline)) static void call_generated(void)
{
	void *outer = address(0);
	void *(*call)(void *, void *, void *, uint64_t);

	memcpy(&call, &outer, sizeof(call));
	kept = call(built_in, address(1), (void *)malloc, SIZE);
}

static void list(const char *outer, const char *inner)
{
	FILE *map = fopen(path, "a");

	fprintf(map, "%jx %zx %s\n", (uintmax_t)(uintptr_t)address(0), sizeof(code), outer);
	fprintf(map, "%jx %zx %s\n", (uintmax_t)(uintptr_t)address(1), sizeof(code), inner);
	fclose(map);
}

int main(void)
{
	char line[256], outer[64], inner[64];
	const int all = PROT_READ | PROT_WRITE | PROT_EXEC;
	unsigned n;

	memory = mmap(NULL, 4096, all, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		return 1;
	for (size_t slot = 0; slot < 2; slot++)
		memcpy(address(slot), code, sizeof(code));
	__builtin___clear_cache((char *)memory, (char *)memory + 4096);
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "call %u", &n) == 1)
			while (n--)
				call_generated();
		else if (sscanf(line, "list %63[^,],%63[^\n]", outer, inner) == 2)
			list(outer, inner);
		puts("done");
		fflush(stdout);
	}
	unlink(path);
}
