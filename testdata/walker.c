/* A program with a dl_iterate_phdr of its own, as runtimes have that keep a copy of the list of libraries: its first
 * call allocates. The objects are freed, and one is made longer, later. It prints "done". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int visit_t(struct dl_phdr_info *, size_t, void *);

static char *kept, *zeroed;

int dl_iterate_phdr(visit_t *visit, void *data)
{
	static int (*real)(visit_t *, void *);

	if (!real) {
		real = dlsym(RTLD_NEXT, "dl_iterate_phdr");
		free(malloc(64));
		kept = strcpy(malloc(16), "kept");
		zeroed = calloc(16, 4);
	}
	return real(visit, data);
}

int main(void)
{
	if (kept) {
		kept = realloc(kept, 100000);
		if (strcmp(kept, "kept") || zeroed[63])
			abort();
		free(kept);
		free(zeroed);
	}
	puts("done");
}
