/* A hash table in a static structure refers to its entries, in chains. */
/* KEPT BY: static_table: cache */
#include "keepers.h"

struct entry {
	long key;
	struct entry *next;
	char payload[object_size];
};

static struct {
	int count;
	struct entry *chains[64];
} cache;

int main(void)
{
	for (int i = 0; i < objects; i++) {
		struct entry *entry = note(malloc(sizeof *entry));
		entry->key = i;
		entry->next = cache.chains[i % 64];
		cache.chains[i % 64] = entry;
		cache.count++;
	}
	return ready() == EOF ? 0 : cache.count;
}
