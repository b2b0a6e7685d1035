/* Programs that a session has started, by their first argument:
 *
 *     leak         leaks 7 objects of 48 bytes
 *     fork         leaks 5 objects of 64 bytes, and forks a child that frees one of them
 *     early fork   forks a child before it has allocated anything
 *     exec         leaks 3 objects of 32 bytes, and executes "leak"
 *
 * A child allocates an object, prints "forked", and after "go" leaks 7 objects of 48 bytes. Each
 * prints its holdings, NAME OBJECTS BYTES, then "done", and ends with its input. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void *volatile objects[16];

static void keep(int n, size_t size)
{
	for (int i = 0; i < n; i++)
		objects[i] = malloc(size);
}

__attribute__((noinline)) void case_leak(void)
{
	keep(7, 48);
	dprintf(STDOUT_FILENO, "case_leak 7 336\n");
}

__attribute__((noinline)) void case_parent(void)
{
	keep(5, 64);
	dprintf(STDOUT_FILENO, "case_parent 5 320\n");
}

__attribute__((noinline)) void base_executed(void)
{
	keep(3, 32);
}

static void wait_for_end(void)
{
	char byte;

	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	pid_t child = -1;

	if (!strcmp(what, "exec")) {
		base_executed();
		execl("/proc/self/exe", argv[0], "leak", NULL);
		_exit(1);
	}
	if (strstr(what, "fork")) {
		if (!strcmp(what, "fork"))
			case_parent();
		child = fork();
		if (child > 0)
			waitpid(child, NULL, 0);
	}
	if (!child) {
		char byte;

		objects[15] = malloc(1);
		free(objects[15]);
		dprintf(STDOUT_FILENO, "forked\n");
		if (read(STDIN_FILENO, &byte, 1) != 1)
			_exit(1);
	}
	if (child <= 0) {
		free(objects[0]);
		case_leak();
		dprintf(STDOUT_FILENO, "done\n");
		wait_for_end();
	}
}
