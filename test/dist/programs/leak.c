/* The twin of leak.py in C: ten times a second it keeps 1 MiB for good, and prints how many. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1 << 20)

char *kept[1 << 16];
size_t count;

__attribute__((noinline)) void keep_buffer(void)
{
	char *buffer = malloc(MIB); /* the leak */

	memset(buffer, 1, MIB);
	kept[count++] = buffer;
}

int main(void)
{
	while (count < sizeof(kept) / sizeof(kept[0])) {
		keep_buffer();
		printf("%zu\n", count);
		fflush(stdout);
		usleep(100000);
	}
	return 0;
}
