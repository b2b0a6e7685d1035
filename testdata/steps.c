/* A program that executes orders, line by line. It prints "ready" at its start, "done" after each
 * line, and exits at the end of its input. It makes no allocation and no mapping but the ordered
 * ones.
 *
 *     leak N SIZE           leak_here() keeps N objects of SIZE bytes, 8 or more
 *     hold N SIZE           hold_here() keeps N objects until the order "drop"
 *     drop
 *     map N SIZE TOUCHED    map_here() maps N pieces of SIZE bytes and writes to the first
 * TOUCHED bytes of each
 *     unmap                 the pieces of the last "map"
 *     cycle N               maps a page, N times another one over it, and unmaps that
 *     move                  a thread executes the orders from now on, and the main thread ends
 *     exec PROGRAM ARG      executes another program
 *     exit                  with status 0 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#define MAX_PIECES 1024

struct object {
	struct object *next;
};

static struct object *leaked, *held;
static char *pieces[MAX_PIECES];
static long piece_count, piece_size;

/* Neither this file nor its stack frames go through stdio: its buffers would be allocations, too. */
static void say(const char *word)
{
	if (write(STDOUT_FILENO, word, strlen(word)) < 0)
		_exit(1);
}

static void die(const char *why)
{
	say(why);
	_exit(1);
}

static void keep(struct object **list, struct object *object)
{
	if (!object)
		die("no memory\n");
	object->next = *list;
	*list = object;
}

__attribute__((noinline)) void leak_here(long size)
{
	keep(&leaked, malloc(size));
}

__attribute__((noinline)) void hold_here(long size)
{
	keep(&held, malloc(size));
}

static void drop(void)
{
	while (held) {
		struct object *object = held;

		held = object->next;
		free(object);
	}
}

__attribute__((noinline)) char *map_here(long size)
{
	char *piece = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (piece == MAP_FAILED)
		die("no address space\n");
	return piece;
}

static void cycle(long times)
{
	char *page = map_here(1);

	while (times-- > 0)
		if (mmap(page, 1, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page)
			die("no address space\n");
	munmap(page, 1);
}

/* The next word of the line as a number. */
static long number(void)
{
	char *word = strtok(NULL, " ");

	return word ? atol(word) : 0;
}

static void map(void)
{
	piece_count = number();
	piece_size = number();
	if (piece_count > MAX_PIECES)
		die("too many pieces\n");
	for (long i = 0, touched = number(); i < piece_count; i++) {
		pieces[i] = map_here(piece_size);
		memset(pieces[i], 1, touched);
	}
}

static void unmap(void)
{
	for (long i = 0; i < piece_count; i++)
		munmap(pieces[i], piece_size);
}

static void execute(void)
{
	char *program = strtok(NULL, " "), *argument = strtok(NULL, " ");

	execl(program, program, argument, (char *)NULL);
	die("cannot execute\n");
}

static void *execute_orders(void *moved);

static void move(void)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, execute_orders, "moved"))
		die("no thread\n");
	pthread_exit(NULL);
}

static void step(char *line)
{
	char *word = strtok(line, " ");

	if (!strcmp(word, "leak"))
		for (long n = number(), size = number(); n > 0; n--)
			leak_here(size);
	else if (!strcmp(word, "hold"))
		for (long n = number(), size = number(); n > 0; n--)
			hold_here(size);
	else if (!strcmp(word, "drop"))
		drop();
	else if (!strcmp(word, "map"))
		map();
	else if (!strcmp(word, "unmap"))
		unmap();
	else if (!strcmp(word, "cycle"))
		cycle(number());
	else if (!strcmp(word, "move"))
		move();
	else if (!strcmp(word, "exec"))
		execute();
	else if (!strcmp(word, "exit"))
		_exit(0);
	else
		die("unknown step\n");
}

/* Reads a line, without its end. */
static void read_line(char *line, long size)
{
	for (long i = 0; i < size; i++) {
		if (read(STDIN_FILENO, &line[i], 1) != 1)
			_exit(0);
		if (line[i] == '\n') {
			line[i] = 0;
			return;
		}
	}
	die("line too long\n");
}

/* Executes orders. The order "move" is done when the next thread says so here. */
static void *execute_orders(void *moved)
{
	char line[512];

	if (moved)
		say("done\n");
	for (;;) {
		read_line(line, sizeof(line));
		step(line);
		say("done\n");
	}
	return NULL;
}

int main(void)
{
	prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* touched memory counts by pages */
	say("ready\n");
	execute_orders(NULL);
}
