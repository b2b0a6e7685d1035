/* The buffer of stdout was a table of pointers to the objects before, which another one has now. */
/* KEPT BY: stale_stream: kept */
#include "keepers.h"

enum { buffer_size = 4096 };

static void **kept;

int main(void)
{
	void **before = malloc(buffer_size);
	kept = malloc(objects * sizeof *kept);
	for (int i = 0; i < objects; i++)
		before[i] = kept[i] = note(malloc(object_size));
	free(before);
	if (setvbuf(stdout, NULL, _IOFBF, buffer_size))
		return 1;
	return ready() == EOF ? 0 : kept[0] != NULL;
}
