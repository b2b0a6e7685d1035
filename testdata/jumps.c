/* A program whose allocator function pvalloc is left by longjmp(3), as by a signal handler. Its caller then allocates
 * below the frame of that call: after "go" it prints the number of objects that nested() holds, and their bytes. */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>

enum { OBJECTS = 1000, SIZE = 100 };

static jmp_buf environment;
static void *volatile kept[OBJECTS];

/* Found before the C library's, as the program exports it. */
__attribute__((noinline)) void *pvalloc(size_t size)
{
	if (size)
		longjmp(environment, 1);
	return NULL;
}

__attribute__((noinline)) void nested(void)
{
	for (int i = 0; i < OBJECTS; i++)
		kept[i] = malloc(SIZE);
}

/* Calls pvalloc above the frame of nested(), which is called from the depth of the call that was left. */
__attribute__((noinline)) static void leave_and_allocate(void)
{
	volatile char frame[4096];

	frame[0] = 0;
	if (!setjmp(environment))
		kept[0] = pvalloc(1);
	nested();
	frame[1] = 0;
}

int main(void)
{
	char line[64];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		leave_and_allocate();
		printf("nested %d %d\ndone\n", OBJECTS, OBJECTS * SIZE);
		fflush(stdout);
	}
}
