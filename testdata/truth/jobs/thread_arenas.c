/* Threads that allocate and free, each in an arena of malloc's own: all arenas are as large as they
 * get within the first seconds. Nothing is kept. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { threads = 12, blocks = 200, size = 20000 };

static void *work(void *arg)
{
	unsigned seed = (unsigned)(size_t)arg;
	void *held[blocks];

	for (;;) {
		for (int i = 0; i < blocks; i++) {
			size_t bytes = size - rand_r(&seed) % 1000;

			held[i] = malloc(bytes);
			memset(held[i], 1, bytes);
		}
		usleep(500000);
		for (int i = 0; i < blocks; i++)
			free(held[i]);
	}
	return NULL;
}

int main(void)
{
	mallopt(M_TRIM_THRESHOLD, 64 << 20);
	for (size_t i = 0; i < threads; i++) {
		pthread_t thread;

		if (pthread_create(&thread, NULL, work, (void *)i))
			return 1;
	}
	printf("ready %d\n", getpid());
	fflush(stdout);
	pause();
}
