/* Static variables of all kinds, whose addresses a program and its libraries print.
 *
 *     static variables [LIBRARY ...]
 *
 * It prints a line "FILE NAME OFFSET ADDRESS" for each variable, "- heap 0 ADDRESS" for memory
 * that is none, and
 * "ready". Each LIBRARY is a build of this file with -DLIBRARY -shared.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct entry {
	long key;
	void *value;
};

#ifndef BSS_ONLY
static struct entry table[40] = { { 1, NULL } };
void *last_value = table;
#endif
static struct entry *buckets[100000]; /* .bss of many pages */
char *first_name;
static __thread struct entry *of_thread;

static void print(const char *file, const char *name, uint64_t offset, void *address)
{
	printf("%s %s %lu %lu\n", file, name, offset, (uint64_t)address);
}

void print_variables(const char *file)
{
	static struct entry *calls; /* the compiler adds a number to its name */

	calls = calloc(1, sizeof(*calls));
	buckets[5000] = malloc(1000);
	of_thread = calls;
#ifndef BSS_ONLY
	print(file, "table", 0, table);
	print(file, "table", 17 * sizeof(table[0]) + 8, &table[17].value);
	print(file, "last_value", 0, &last_value);
#endif
	print(file, "buckets", 40000, &buckets[5000]);
	print(file, "buckets", sizeof(buckets) - 1, (char *)buckets + sizeof(buckets) - 1);
	print(file, "first_name", 0, &first_name);
	print(file, "calls.0", 0, &calls);
	print("-", "heap", 0, calls);
	print("-", "heap", 0, buckets[5000]);
	print("-", "thread", 0, &of_thread);
	print("-", "code", 0, print_variables);
	print("-", "string", 0, "constant");
}

#ifndef LIBRARY
int main(int argc, char **argv)
{
	char buffer[16];

	print_variables(argv[0]);
	print("-", "break", 0, (char *)sbrk(0) - 1);
	print("-", "local", 0, buffer);
	for (int i = 1; i < argc; i++) {
		void *library = dlopen(argv[i], RTLD_NOW);
		void (*run)(const char *) = library ? dlsym(library, "print_variables") : NULL;

		if (!run) {
			fprintf(stderr, "%s\n", dlerror());
			return 1;
		}
		run(argv[i]);
	}
	puts("ready");
	fflush(stdout);
	return !fgets(buffer, sizeof(buffer), stdin);
}
#endif
