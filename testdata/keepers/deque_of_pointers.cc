// A std::deque that a global variable refers to has the only pointers to the objects.
// KEPT BY: deque_of_pointers: waiting
#include <deque>
#include "keepers.h"

std::deque<void *> *waiting;

int main()
{
	waiting = new std::deque<void *>;
	for (int i = 0; i < objects; i++)
		waiting->push_back(note(malloc(object_size)));
	return ready() == EOF ? 0 : waiting->size();
}
