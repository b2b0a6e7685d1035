/* Signal handlers that allocate at known places, and generated code. x86-64 only.
 *
 *     trap plt|vdso      steps through code by the trap flag, with a handler that allocates
 * before every single
 * instruction: of the first call of a function through the PLT, or of clock_gettime in the vDSO
 * trap jit|jit-bare
 * allocates below generated code that keeps a frame pointer, or does not
 *
 * Prints "ready"; after "go" prints how often it has allocated so and prints "done". */
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))
#define KEEP(p) __asm__ volatile("" : : "r"(p) : "memory")
/* For functions that call others, whose red zone is not in use. */
#define SET_FLAGS(how)                                                                                                 \
	__asm__ volatile("pushfq; .cfi_adjust_cfa_offset 8; " how "; popfq; .cfi_adjust_cfa_offset -8"                 \
			 :                                                                                             \
			 :                                                                                             \
			 : "memory", "cc")
#define STEP_ON() SET_FLAGS("orl $0x100, (%%rsp)")
#define STEP_OFF() SET_FLAGS("andl $~0x100, (%%rsp)")

static volatile int allocations;

NOINLINE static void allocate(void)
{
	void *p = malloc(100);

	KEEP(p);
	free(p);
	allocations++;
}

static void on_trap(int signal)
{
	(void)signal;
	allocate();
}

NOINLINE static void step_plt(void)
{
	char text[8] = "";

	STEP_ON();
	strfry(text); /* called nowhere else: the dynamic linker binds it now */
	STEP_OFF();
	KEEP(text);
}

NOINLINE static void step_vdso(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now); /* binds it */
	STEP_ON();
	clock_gettime(CLOCK_MONOTONIC, &now);
	STEP_OFF();
	KEEP(&now);
}

typedef void (*code)(void (*)(void));

static code generate(const unsigned char *bytes, size_t length)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(page, bytes, length);
	mprotect(page, 4096, PROT_READ | PROT_EXEC);
	return (code)page;
}

NOINLINE static void call_generated(code generated)
{
	generated(allocate);
	KEEP(generated);
}

int main(int argc, char **argv)
{
	/* push %rbp; mov %rsp, %rbp; call *%rdi; pop %rbp; ret */
	static const unsigned char with[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
	/* push %rbp; xor %ebp, %ebp; call *%rdi; pop %rbp; ret */
	static const unsigned char without[] = { 0x55, 0x31, 0xed, 0xff, 0xd7, 0x5d, 0xc3 };
	const char *mode = argc > 1 ? argv[1] : "";
	code with_frame = generate(with, sizeof(with)), without_frame = generate(without, sizeof(without));
	char line[8];

	signal(SIGTRAP, on_trap);
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	if (!strcmp(mode, "plt"))
		step_plt();
	else if (!strcmp(mode, "vdso"))
		step_vdso();
	else if (!strcmp(mode, "jit"))
		call_generated(with_frame);
	else if (!strcmp(mode, "jit-bare"))
		call_generated(without_frame);
	printf("%d\ndone\n", allocations);
	fflush(stdout);
	return !fgets(line, sizeof(line), stdin);
}
