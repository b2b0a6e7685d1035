/* Threads that wait and threads that run, each of which prints where its stack is.
 *
 *     threads WAITING RUNNING
 *
 * A line of a thread is "NAME LOCAL DEAD BASE": the address of a variable of a function that it is
 * in, the address of a variable of one that has returned, and where its stack ends by
 * pthread_getattr_np(3). Then it prints "ready". A thread "own" waits on a stack in the middle of a
 * mapping of the program's. LOCAL of "tls" is the address of a thread-local variable of the first
 * thread.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static sem_t printed;
static __thread long of_thread = 1;

/* Returns the address of the lowest byte of its frame. */
static __attribute__((noinline)) uint64_t deeper(void)
{
	volatile char buffer[32 << 10];

	memset((char *)buffer, 1, sizeof(buffer));
	return (uint64_t)buffer;
}

static void print(const char *name, void *local)
{
	pthread_attr_t attributes;
	void *lowest;
	size_t size;

	pthread_setname_np(pthread_self(), name);
	pthread_getattr_np(pthread_self(), &attributes);
	pthread_attr_getstack(&attributes, &lowest, &size);
	printf("%s %lu %lu %lu\n", name, (uint64_t)local, deeper(), (uint64_t)lowest + size);
	sem_post(&printed);
}

static void *wait_for_ever(void *name)
{
	volatile long local = 7;

	print(name, (void *)&local);
	for (;;)
		pause();
	return NULL;
}

static void *run(void *name)
{
	volatile long local = 7;

	print(name, (void *)&local);
	for (;;)
		local++;
	return NULL;
}

static void start(pthread_attr_t *attributes, void *(*function)(void *), const char *kind, long number)
{
	char name[16];
	pthread_t thread;

	snprintf(name, sizeof(name), "%s%ld", kind, number);
	if (pthread_create(&thread, attributes, function, strdup(name))) {
		perror("pthread_create");
		exit(1);
	}
	sem_wait(&printed);
}

int main(int argc, char **argv)
{
	const size_t size = 1 << 20;
	pthread_attr_t attributes;
	char *memory, line[16];
	int c;

	setvbuf(stdout, NULL, _IOLBF, 0);
	sem_init(&printed, 0, 0);
	for (long i = 0; i < atol(argv[1]); i++)
		start(NULL, wait_for_ever, "wait", i);
	for (long i = 0; i < atol(argv[2]); i++)
		start(NULL, run, "run", i);

	memory = mmap(NULL, 16 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_init(&attributes);
	pthread_attr_setstack(&attributes, memory + 4 * size, size);
	start(&attributes, wait_for_ever, "own", 0);

	print("first", &attributes);
	printf("tls %lu 0 0\n", (uint64_t)&of_thread);
	puts("ready");
	while ((c = read(0, line, sizeof(line))) > 0)
		;
	return c;
}
