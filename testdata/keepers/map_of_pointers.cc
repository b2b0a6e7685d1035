// A std::map has the only pointers to the objects.
// KEPT BY: map_of_pointers: sessions
#include <map>
#include "keepers.h"

std::map<int, void *> sessions;

int main()
{
	for (int i = 0; i < objects; i++)
		sessions[i] = note(malloc(object_size));
	return ready() == EOF ? 0 : sessions.size();
}
