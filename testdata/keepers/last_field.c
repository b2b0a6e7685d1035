/* The pointers to the objects are the last fields of structures that fill their chunks. */
/* KEPT BY: last_field: table */
#include "keepers.h"

struct entry {
	struct entry *next;
	long key;
	void *value;
};

static struct {
	struct entry *buckets[16];
} * table;

int main(void)
{
	table = calloc(1, sizeof *table);
	for (int i = 0; i < objects; i++) {
		struct entry *entry = calloc(1, sizeof *entry);
		struct entry **bucket = &table->buckets[i % 16];
		entry->value = note(malloc(object_size));
		entry->next = *bucket;
		*bucket = entry;
	}
	return ready() == EOF ? 0 : table->buckets[0] != NULL;
}
