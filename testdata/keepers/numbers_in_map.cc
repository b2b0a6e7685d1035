// The keys of a std::map are numbers, and some of them are the addresses of objects that nothing keeps.
// KEPT BY: nothing
#include <map>
#include "keepers.h"

std::map<unsigned long, long> tags;

int main()
{
	for (unsigned long i = 1; i <= 5000; i++)
		tags[i * 4099] = tags[i << 50 | i] = 1;
	for (int i = 0; i < objects; i++)
		tags[(unsigned long)note(malloc(object_size))] = 1;
	return ready() == EOF ? 0 : tags.size();
}
