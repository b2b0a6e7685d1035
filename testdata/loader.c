/* Calls main() of a library that does not use this program's malloc.
 *
 *     loader deep|apart LIBRARY ARGUMENTS...
 *
 * deep: the library's own names come first. apart: it is in a namespace of its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *library = NULL;
	int (*entry)(int, char **) = NULL;

	if (argc > 2)
		library = *argv[1] == 'd' ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND)
					  : dlmopen(LM_ID_NEWLM, argv[2], RTLD_NOW);
	if (library)
		entry = (int (*)(int, char **))dlsym(library, "main");
	if (!entry) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	return entry(argc - 2, argv + 2);
}
