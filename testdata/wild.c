/* Serves as a libcuda.so.1 that grants everything and does nothing, and with -DPROGRAM for a program that calls it
 * with arguments of which nothing is true. It gets the library's path, prints "ready", executes
 * one order a line,
 * prints "done", and exits at the end of its input.
 *
 *     unreadable N   N times, wants the address where it has no memory
 *     properties N   N times, creates 2 MiB with properties where it has no memory
 *     huge N         N times, for each of sizes that no memory has, wants so much of each kind
 *     twice N        is given the same address N times
 *     map N          N times, maps a handle that was created nowhere, unmaps the whole span of
 * its memory, and
 * retains memory without an owner */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*call)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);

#ifndef PROGRAM
#define GRANTED(name)                                                                                                  \
	int name(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)                                           \
	{                                                                                                              \
		return 0;                                                                                              \
	}

GRANTED(cuMemAlloc_v2)
GRANTED(cuMemAllocPitch_v2)
GRANTED(cuMemFree_v2)
GRANTED(cuMemCreate)
GRANTED(cuMemRelease)
GRANTED(cuMemRetainAllocationHandle)
GRANTED(cuMemMap)
GRANTED(cuMemUnmap)
GRANTED(cuMemHostAlloc)
GRANTED(cuMemHostRegister_v2)
#else
#define NOWHERE 0xdead000 /* where nothing is mapped */

static void *library;
static uint64_t next = 1 << 20; /* the address that the driver "gives" */

static call function(const char *name)
{
	void *found = dlsym(library, name);
	call as_call;

	if (!found) {
		fprintf(stderr, "wild: %s\n", name);
		exit(1);
	}
	memcpy(&as_call, &found, sizeof(as_call));
	return as_call;
}

static uint64_t out(void)
{
	static uint64_t given;

	given = next += 1 << 20;
	return (uintptr_t)&given;
}

static void huge(void)
{
	static const uint64_t sizes[] = { UINT64_MAX, UINT64_MAX - 4095, 1ULL << 63, INT64_MAX, 1ULL << 50, 0 };
	uint64_t pitch = UINT64_MAX;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		function("cuMemAlloc_v2")(out(), sizes[i], 0, 0, 0);
		function("cuMemAllocPitch_v2")(out(), (uintptr_t)&pitch, 1, sizes[i], 4);
		function("cuMemCreate")(out(), sizes[i], 0, 0, 0);
		function("cuMemHostAlloc")(out(), sizes[i], 0, 0, 0);
		function("cuMemHostRegister_v2")(next += 1 << 20, sizes[i], 0, 0, 0);
		function("cuMemHostRegister_v2")(UINT64_MAX - next, sizes[i], 0, 0, 0);
	}
}

static void twice(void)
{
	uint64_t same = 4096;

	function("cuMemAlloc_v2")((uintptr_t)&same, 100, 0, 0, 0);
}

static void map(void)
{
	function("cuMemMap")(0, UINT64_MAX, 0, NOWHERE, 0);
	function("cuMemUnmap")(0, UINT64_MAX, 0, 0, 0);
	function("cuMemUnmap")(UINT64_MAX, UINT64_MAX, 0, 0, 0);
	function("cuMemRetainAllocationHandle")(NOWHERE, NOWHERE, 0, 0, 0);
	function("cuMemRelease")(NOWHERE, 0, 0, 0, 0);
}

static void execute(const char *verb)
{
	if (!strcmp(verb, "unreadable"))
		function("cuMemAlloc_v2")(NOWHERE, 1000, 0, 0, 0);
	else if (!strcmp(verb, "properties"))
		function("cuMemCreate")(out(), 2 << 20, NOWHERE, 0, 0);
	else if (!strcmp(verb, "huge"))
		huge();
	else if (!strcmp(verb, "twice"))
		twice();
	else
		map();
}

int main(int argc, char **argv)
{
	char verb[16];
	int n;

	library = dlopen(argv[1], RTLD_NOW);
	if (!library) {
		fprintf(stderr, "wild: %s\n", dlerror());
		return 1;
	}
	puts("ready");
	fflush(stdout);
	while (scanf("%15s %d", verb, &n) == 2) {
		while (n-- > 0)
			execute(verb);
		puts("done");
		fflush(stdout);
	}
	return 0;
}
#endif
