/* Keeps objects, in itself or in a child, and says as often as ordered that it has started. It prints "ready", and
 * "done" after each line of its input:
 *
 *     keep OBJECTS           keeps objects of 96 bytes
 *     flood OBJECTS          has the child keep objects of 48 bytes, each of which it allocates
 * in a stack of its own
 *     start TIMES ADDRESS    calls the function at an address
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void *volatile kept;

__attribute__((noinline)) void case_keep(long objects)
{
	for (long i = 0; i < objects; i++) {
		void **object = malloc(96);

		*object = kept;
		kept = object;
	}
}

/* Allocates below so many calls as the number has digits, each of which is one of two. */
__attribute__((noinline)) void case_flood(unsigned long path);

__attribute__((noinline)) static void flood_left(unsigned long path)
{
	case_flood(path / 2);
	__asm__ volatile("");
}

__attribute__((noinline)) static void flood_right(unsigned long path)
{
	case_flood(path / 2);
	__asm__ volatile("");
}

void case_flood(unsigned long path)
{
	if (path > 1) {
		(path & 1 ? flood_left : flood_right)(path);
		__asm__ volatile("");
		return;
	}
	void **object = malloc(48);

	*object = kept;
	kept = object;
}

static void serve_flood(int orders, int answers)
{
	long objects;

	kept = calloc(1, sizeof(kept)); /* its first sample */
	while (read(orders, &objects, sizeof(objects)) == sizeof(objects)) {
		for (long i = 0; i < objects; i++)
			case_flood(i + 2);
		if (write(answers, "", 1) != 1)
			break;
	}
	_exit(0);
}

int main(void)
{
	int orders[2], answers[2];
	char line[128], byte;

	if (pipe(orders) || pipe(answers))
		return 1;
	if (!fork()) {
		close(orders[1]);
		serve_flood(orders[0], answers[1]);
	}
	close(orders[0]);

	dprintf(STDOUT_FILENO, "ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		unsigned long number, address;

		if (sscanf(line, "keep %lu", &number) == 1)
			case_keep(number);
		else if (sscanf(line, "start %lu %lx", &number, &address) == 2)
			while (number--)
				((void (*)(void))address)();
		else if (sscanf(line, "flood %lu", &number) == 1 &&
			 (write(orders[1], &number, sizeof(number)) != sizeof(number) ||
			  read(answers[0], &byte, 1) != 1))
			return 1;
		dprintf(STDOUT_FILENO, "done\n");
	}
	return 0;
}
