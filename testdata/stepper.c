/* Calls training_step() of a library as ordered, by lines: "load PATH" loads the library unless the program is
 * linked with it, "call THREADS TIMES" calls so many times in each of so many threads. It prints "done" after each. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 64

static void die(const char *why)
{
	fprintf(stderr, "stepper: %s\n", why);
	exit(1);
}

static void *call_often(void *times)
{
	void (*step)(void) = (void (*)(void))dlsym(RTLD_DEFAULT, "training_step");

	if (!step)
		die("no training_step() is loaded");
	for (long i = 0; i < (long)times; i++)
		step();
	return NULL;
}

static void call(const char *arguments)
{
	pthread_t threads[MAX_THREADS];
	long count, times;

	if (sscanf(arguments, "%ld %ld", &count, &times) != 2 || count > MAX_THREADS)
		die("call takes THREADS and TIMES");
	for (long i = 0; i < count; i++)
		if (pthread_create(&threads[i], NULL, call_often, (void *)times))
			die("no thread");
	for (long i = 0; i < count; i++)
		pthread_join(threads[i], NULL);
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
		if (strncmp(line, "load ", 5))
			call(line + 5);
		else if (!dlopen(line + 5, RTLD_NOW | RTLD_GLOBAL))
			die(dlerror());
		say("done");
	}
	return 0;
}
