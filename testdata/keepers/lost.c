/* Nothing refers to the objects: the program has lost them. */
/* KEPT BY: nothing */
#include "keepers.h"

int main(void)
{
	for (int i = 0; i < objects; i++)
		note(malloc(object_size));
	return ready();
}
