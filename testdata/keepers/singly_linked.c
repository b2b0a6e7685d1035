/* A global variable refers to the first node of a linked list. */
/* KEPT BY: singly_linked: head */
#include "keepers.h"

static struct node {
	struct node *next;
	char payload[object_size];
} * head;

int main(void)
{
	for (int i = 0; i < 30; i++) {
		struct node *node = note(malloc(sizeof *node));
		node->next = head;
		head = node;
	}
	return ready() == EOF ? 0 : head->payload[0];
}
