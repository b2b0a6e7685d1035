/* The last word of each node leads to the object: it is the first word of malloc's next chunk. */
/* KEPT BY: last_word: head */
#include "keepers.h"

struct node {
	virtual ~node() {}
	struct node *next;
	void *object;
};

static node *head;

int main()
{
	for (int i = 0; i < 30; i++) {
		node *one = new node;
		one->next = head;
		one->object = note(malloc(object_size));
		head = one;
	}
	return ready() == EOF ? 0 : head->next == nullptr;
}
