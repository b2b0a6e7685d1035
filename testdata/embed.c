/* Runs Python inside itself: acts as python3 with its arguments. Linked with libpython; or, built
 * with -DLIBRARY="path of libpython", it prints "ready", waits for a line and loads that library
 * only then. */
#include <dlfcn.h>
#include <stdio.h>

typedef int run_python(int argc, char **argv);

#ifdef LIBRARY
static run_python *load_python(void)
{
	char line[16];
	void *library;

	setvbuf(stdin, NULL, _IONBF, 0); /* input after the line is Python's */
	puts("ready");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return NULL;
	library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL); /* extension modules find Python's functions there */
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return NULL;
	}
	return (run_python *)dlsym(library, "Py_BytesMain");
}
#else
run_python Py_BytesMain; /* Python.h has it since 3.8 */

static run_python *load_python(void)
{
	return Py_BytesMain;
}
#endif

int main(int argc, char **argv)
{
	run_python *run = load_python();

	return run ? run(argc, argv) : 1;
}
