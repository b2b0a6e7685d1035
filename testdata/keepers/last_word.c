/* The last word of each node leads to the object: it is the first word of malloc's next chunk. */
/* KEPT BY: last_word: head */
#include "keepers.h"

static struct node {
	struct node *next;
	long number;
	void *object;
} * head;

int main(void)
{
	for (int i = 0; i < 30; i++) {
		struct node *node = malloc(sizeof *node);
		node->next = head;
		node->number = i;
		node->object = note(malloc(object_size));
		head = node;
	}
	return ready() == EOF ? 0 : head->number != 29;
}
