/* A C extension that opens a session for each request, and closes none. */
#include <stdlib.h>
#include <string.h>

struct session {
	char state[1000];
};

int session_open(int request)
{
	struct session *s = malloc(sizeof(*s)); /* NAMED */

	__asm__ volatile("" : "+r"(s)); /* else the compiler leaves malloc out */
	memset(s->state, request, sizeof(s->state));
	return s->state[request % 1000];
}
