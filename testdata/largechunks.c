// Has chunks of 100 KB to 1 MB in the main heap, of which it frees every second one. It prints the
// chunks that are left, as glibc's own functions know them.
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
	enum { count = 10 };
	char *blocks[count];

	mallopt(M_MMAP_THRESHOLD, 32 << 20);
	for (int i = 0; i < count; i++)
		blocks[i] = malloc(100000 * (i + 1));
	char *small = malloc(1000);
	for (int i = 1; i < count; i += 2)
		free(blocks[i]);

	for (int i = 0; i < count; i += 2) {
		uintptr_t header = (uintptr_t)blocks[i] - 2 * sizeof(size_t);
		printf("chunk %lu %lu\n", header, malloc_usable_size(blocks[i]) + sizeof(size_t));
	}
	printf("ready\n");
	fflush(stdout);
	getchar();
	free(small);
	return 0;
}
