/* A program that starts a tree of processes on command.
 *
 * It speaks by lines: prints "ready", executes one order a line, prints "done" after each, and
 * exits at the end of its input; its children exit then too.
 *
 *     grow N      allocates N MiB and touches them
 *     fork N      starts N children, and prints the PID of each
 *     deep N      starts a chain of N processes, each the child of the one before, and prints the
 * PID of each
 *     run WORDS   starts a child that executes the words, and prints its PID
 *     exec WORDS  executes the words, in place
 *     end PID     kills a child and waits for its end */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static int alive[2]; /* a pipe whose writing end only the first process holds */

static void await_the_end(void)
{
	char byte;

	close(alive[1]);
	_exit(read(alive[0], &byte, 1) != 0);
}

static void say(long pid)
{
	printf("%ld\n", pid);
	fflush(stdout);
}

static void grow(long mebibytes)
{
	size_t size = mebibytes << 20;
	char *memory = malloc(size);

	memset(memory, 1, size);
	__asm__ volatile("" : : "r"(memory) : "memory");
}

static void start(long n)
{
	while (n-- > 0) {
		pid_t pid = fork();

		if (pid == 0)
			await_the_end();
		say(pid);
	}
}

/* The last of the chain prints who they are, so that all are there when one has read it. */
static void start_chain(long n)
{
	pid_t chain[64];
	int chain_pipe[2];

	if (n < 1 || n > 64 || pipe(chain_pipe) != 0)
		exit(1);
	if (fork() == 0) {
		for (int i = 0; i < n; i++) {
			chain[i] = getpid();
			if (i == n - 1 && write(chain_pipe[1], chain, n * sizeof(*chain)) < 0)
				_exit(1);
			if (i == n - 1 || fork() > 0)
				await_the_end();
		}
	}
	if (read(chain_pipe[0], chain, n * sizeof(*chain)) != (ssize_t)(n * sizeof(*chain)))
		exit(1);
	close(chain_pipe[0]);
	close(chain_pipe[1]);
	for (int i = 0; i < n; i++)
		say(chain[i]);
}

static void execute(char *words)
{
	char *arguments[64];
	int n = 0;

	for (char *word = strtok(words, " "); word && n < 63; word = strtok(NULL, " "))
		arguments[n++] = word;
	arguments[n] = NULL;
	execvp(arguments[0], arguments);
	_exit(127);
}

static void run(char *words)
{
	pid_t pid = fork();

	if (pid == 0) {
		close(alive[1]);
		dup2(alive[0], 0);
		execute(words);
	}
	say(pid);
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(void)
{
	char line[4096];

	if (pipe(alive) != 0)
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		char *words = strchr(line, ' ');

		line[strcspn(line, "\n")] = 0;
		words = words ? words + 1 : line;
		if (!strncmp(line, "grow ", 5))
			grow(atol(words));
		else if (!strncmp(line, "fork ", 5))
			start(atol(words));
		else if (!strncmp(line, "deep ", 5))
			start_chain(atol(words));
		else if (!strncmp(line, "run ", 4))
			run(words);
		else if (!strncmp(line, "exec ", 5))
			execute(words);
		else if (!strncmp(line, "end ", 4))
			end(atoi(words));
		puts("done");
		fflush(stdout);
	}
	return 0;
}
