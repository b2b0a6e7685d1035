/* Code that the native programs share: they print the addresses that they noted, and wait. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { objects = 400, samples = 8, object_size = 200 };

static unsigned long noted[objects]; /* all bits inverted, so that it refers to nothing */
static int length;

static void *note(void *object)
{
	noted[length++] = ~(unsigned long)object;
	return object;
}

static int ready(void)
{
	printf("ready %d\ntype \nobjects", getpid());
	for (int i = 0; i < samples; i++)
		printf(" %#lx", ~noted[i * (length - 1) / (samples - 1)]);
	printf("\nnoted %d\nlive %d\ndone\n", length, length);
	fflush(stdout);

	return getchar(); /* until the input ends */
}
