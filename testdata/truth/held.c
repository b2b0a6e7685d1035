/* Is linked into the test programs of leak checkers, so that they live while their memory is read.
 * By the linker's --wrap it notes the allocations of the program. Where the program would end, or
 * call delete[] with PAUSE_AT_DELETE, it prints "block NUMBER ADDRESS" for each allocation and
 * "ready PID", and waits. The notes are no pointers: see MASK. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MASK 0x5a5a5a5a5a5a5a5aULL
#define BLOCKS 4096

static volatile uint64_t noted[BLOCKS];
static volatile unsigned int number;

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real__Znwm(size_t size) __attribute__((weak));
void *__real__Znam(size_t size) __attribute__((weak));
char *__real_strdup(const char *text);

static void *note(void *block)
{
	unsigned int at = __sync_fetch_and_add(&number, 1);

	if (at < BLOCKS)
		noted[at] = (uint64_t)block ^ MASK;
	return block;
}

void *__wrap_malloc(size_t size)
{
	return note(__real_malloc(size));
}

void *__wrap_calloc(size_t count, size_t size)
{
	return note(__real_calloc(count, size));
}

void *__wrap__Znwm(size_t size)
{
	return note(__real__Znwm(size));
}

void *__wrap__Znam(size_t size)
{
	return note(__real__Znam(size));
}

char *__wrap_strdup(const char *text)
{
	return note(__real_strdup(text));
}

static void show(void)
{
	for (unsigned int i = 0; i < number && i < BLOCKS; i++)
		printf("block %u %#llx\n", i, (unsigned long long)(noted[i] ^ MASK));
	printf("ready %d\n", getpid());
	fflush(stdout);
	for (;;)
		pause();
}

void __wrap__exit(int status)
{
	(void)status;
	show();
}

#ifdef PAUSE_AT_DELETE
/* delete[] of objects with a destructor */
void __wrap__ZdaPvm(void *block, size_t size)
{
	(void)block;
	(void)size;
	show();
}
#endif

/* Overwrites the dead frames of main, whose words would look like references. */
static __attribute__((noinline)) void scrub(void)
{
	volatile char frames[3 << 20];

	for (size_t i = 0; i < sizeof(frames); i++)
		frames[i] = 0;
}

int __real_main(int argc, char **argv, char **environment);

int __wrap_main(int argc, char **argv, char **environment)
{
	int status = __real_main(argc, argv, environment);

#ifndef KEEP_STACK
	scrub();
#endif
	exit(status);
}

/* Functions registered first are called last, after all destructors. */
__attribute__((constructor(101))) static void begin(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	atexit(show);
}

/* Functions of LeakSanitizer that its programs call. */
void __lsan_disable(void)
{
}

void __lsan_enable(void)
{
}

void __lsan_do_leak_check(void)
{
}

int __lsan_do_recoverable_leak_check(void)
{
	return 0;
}
