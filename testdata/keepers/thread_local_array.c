/* A large thread-local array of the first thread has the only pointers to the objects. */
/* KEPT BY: stack of native thread */
#include "keepers.h"

static __thread void *volatile kept[40000];

int main(void)
{
	for (int i = 0; i < objects; i++)
		kept[i] = note(malloc(object_size));
	return ready() == EOF ? 0 : kept[0] != NULL;
}
