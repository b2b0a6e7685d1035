/* A linked list grows at its front all the time: its head is another one at each reading. */
/* KEPT BY: growing_list: owner */
#include <pthread.h>
#include "keepers.h"

struct node {
	struct node *next;
	void *payload;
};

static struct {
	long name[3];
	struct node *volatile head;
} * owner;

static void push(void *payload)
{
	struct node *node = malloc(sizeof *node);
	node->payload = payload;
	node->next = owner->head;
	owner->head = node;
}

static void *grow(void *unused)
{
	for (;;) {
		push(malloc(object_size));
		usleep(3000);
	}
	return unused;
}

int main(void)
{
	pthread_t thread;
	owner = calloc(1, sizeof *owner);
	for (int i = 0; i < objects; i++)
		push(note(malloc(object_size)));
	for (int i = 0; i < samples; i++)
		push(malloc(object_size));
	pthread_create(&thread, NULL, grow, NULL);
	return ready() == EOF ? 0 : owner->head != NULL;
}
