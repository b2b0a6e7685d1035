/* Large tables between mappings of the program, of which only the first entries are used so far. */
/* KEPT BY: tables_begun: tables */
/* EACH */
#include <string.h>
#include <sys/mman.h>
#include "keepers.h"

enum { tables_count = 8, table_size = 160 << 10 };

static void **tables[tables_count];

int main(void)
{
	for (int t = 0; t < tables_count; t++) {
		tables[t] = malloc(table_size);
		memset(tables[t], 1, table_size);
		mmap(NULL, table_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		for (int i = 0; i < objects / tables_count; i++)
			tables[t][i] = note(malloc(object_size));
	}
	return ready() == EOF ? 0 : tables[0][0] != NULL;
}
