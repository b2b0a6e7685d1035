/* A global variable refers to an array of pointers. */
/* KEPT BY: global_array: table */
#include "keepers.h"

void **table;

int main(void)
{
	table = calloc(objects, sizeof *table);
	for (int i = 0; i < objects; i++)
		table[i] = note(malloc(object_size));
	return ready() == EOF ? 0 : table[1] == NULL;
}
