/* Is preloaded into stress-ng: each forked process waits before it goes on, so that a tracer knows
 * it before it allocates. */
#include <pthread.h>
#include <time.h>

#define DELAY_S 4

static void wait_in_child(void)
{
	struct timespec left = { DELAY_S, 0 };

	while (nanosleep(&left, &left) != 0)
		;
}

__attribute__((constructor)) static void start(void)
{
	pthread_atfork(NULL, NULL, wait_in_child);
}
