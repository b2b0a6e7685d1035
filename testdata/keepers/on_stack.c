/* A local array of a running function, in a thread, has the only pointers to the objects. */
/* KEPT BY: stack of native thread */
#include <pthread.h>
#include "keepers.h"

static void *serve(void *unused)
{
	void *volatile requests[objects];
	for (int i = 0; i < objects; i++)
		requests[i] = note(malloc(object_size));
	ready();
	return requests[1];
}

int main(void)
{
	pthread_t thread;
	pthread_create(&thread, NULL, serve, NULL);
	return pthread_join(thread, NULL);
}
