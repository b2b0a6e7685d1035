/* Loads libraries and calls into them as ordered, by lines: "load PATH", "deep PATH" (its own names come first),
 * "apart PATH" (in a namespace of its own), "call N" (each of the libraries, N times). It prints "done" after each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*plugins[1024])(void);
static unsigned loaded;

static void add(const char *path, void *library)
{
	if (!library || loaded == 1024) {
		fprintf(stderr, "load %s: %s\n", path, dlerror());
		exit(1);
	}
	plugins[loaded++] = (void (*)(void))dlsym(library, "plugin_outer");
}

__attribute__((noinline)) static void call_all(unsigned times)
{
	while (times--)
		for (unsigned i = 0; i < loaded; i++)
			plugins[i]();
}

static void say(const char *text)
{
	printf("%s\n", text);
	fflush(stdout);
}

int main(void)
{
	char line[4096];

	say("ready");
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "load ", 5))
			add(line + 5, dlopen(line + 5, RTLD_NOW | RTLD_LOCAL));
		else if (!strncmp(line, "deep ", 5))
			add(line + 5, dlopen(line + 5, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND));
		else if (!strncmp(line, "apart ", 6))
			add(line + 6, dlmopen(LM_ID_NEWLM, line + 6, RTLD_NOW));
		else
			call_all(atoi(line + 5));
		say("done");
	}
	return 0;
}
