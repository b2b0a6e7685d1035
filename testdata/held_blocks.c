/* Blocks that something refers to in ways that are easily missed, and blocks that are lost. It
 * prints a line for each kind: its name, "held" or "lost", and the addresses of its blocks. Then it
 * waits for a line, moves the references of one kind, and waits. No address stays but where the
 * kind has it: all others
 * are inverted. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BLOCKS = 10, SIZE = 200, BULK = 4 << 20, HOLDER = 40000 };

static uintptr_t noted[BLOCKS]; /* of the present kind, inverted */
void *table[BLOCKS];
static pthread_barrier_t started;

/* Allocates a block, and leaves no trace of its address. */
__attribute__((noinline)) static uintptr_t allocate(size_t size)
{
	void *block = malloc(size);

	memset(block, 1, size);
	return ~(uintptr_t)block;
}

/* Writes over the stack below. */
__attribute__((noinline)) static void wipe(void)
{
	volatile char room[64 << 10];

	memset((void *)room, 0, sizeof(room));
}

static void make(size_t size)
{
	for (int i = 0; i < BLOCKS; i++)
		noted[i] = allocate(size);
}

static void show(const char *name, const char *want)
{
	printf("%s %s", name, want);
	for (int i = 0; i < BLOCKS; i++)
		printf(" %lu", (unsigned long)~noted[i]);
	printf("\n");
}

static void *block(int i)
{
	return (void *)~noted[i];
}

__thread void *locals[BLOCKS];

static void *with_locals(void *unused)
{
	for (int i = 0; i < BLOCKS; i++)
		locals[i] = block(i);
	pthread_barrier_wait(&started);
	for (;;)
		pause();
	return unused;
}

static pthread_key_t keys[BLOCKS];

static void *with_keys(void *unused)
{
	for (int i = 0; i < BLOCKS; i++)
		pthread_setspecific(keys[i], block(i));
	pthread_barrier_wait(&started);
	for (;;)
		pause();
	return unused;
}

static void *on_stack(void *unused)
{
	void *volatile own[BLOCKS];

	for (int i = 0; i < BLOCKS; i++)
		own[i] = block(i);
	pthread_barrier_wait(&started);
	for (;;)
		pause();
	return own[0] ? unused : NULL;
}

/* Has a block in a callee-saved register alone, in a call of pause(2). */
static void *in_register(void *index)
{
	uintptr_t inverted = noted[(intptr_t)index];

	pthread_barrier_wait(&started);
#if defined(__x86_64__)
	__asm__ volatile("mov %0, %%r12\n"
			 "xor %0, %0\n"
			 "not %%r12\n"
			 "1: mov $34, %%eax\n"
			 "syscall\n"
			 "jmp 1b\n" ::"r"(inverted)
			 : "r12", "rax", "rcx", "r11", "memory");
#else
	__asm__ volatile("mvn x19, %0\n"
			 "mov x8, #73\n" /* ppoll(NULL, 0, NULL, NULL) */
			 "1: mov x0, #0\n mov x1, #0\n mov x2, #0\n mov x3, #0\n"
			 "svc #0\n"
			 "b 1b\n" ::"r"(inverted)
			 : "x0", "x1", "x2", "x3", "x8", "x19", "memory");
#endif
	return NULL;
}

static void start(void *(*run)(void *), int threads)
{
	pthread_t thread;

	pthread_barrier_init(&started, NULL, threads + 1);
	for (intptr_t i = 0; i < threads; i++)
		pthread_create(&thread, NULL, run, (void *)i);
	pthread_barrier_wait(&started);
	usleep(100000); /* they sleep now */
}

static void poll_all(void)
{
	int epoll = epoll_create1(0), pipes[2];

	for (int i = 0; i < BLOCKS; i++) {
		struct epoll_event event = { .events = EPOLLIN, .data.ptr = block(i) };

		if (pipe(pipes) || epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &event))
			exit(1);
		memset(&event, 0, sizeof(event));
	}
}

static void time_all(void)
{
	for (int i = 0; i < BLOCKS; i++) {
		struct sigevent event = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1 };
		timer_t timer;

		event.sigev_value.sival_ptr = block(i);
		if (timer_create(CLOCK_MONOTONIC, &event, &timer))
			exit(1);
		memset(&event, 0, sizeof(event));
	}
}

struct node {
	struct node *next, *back;
	char rest[SIZE - 16];
};

/* Links the blocks to a list, or to a ring. */
static void link_all(int is_ring)
{
	for (int i = 0; i < BLOCKS; i++) {
		struct node *node = block(i);

		node->next = i + 1 < BLOCKS ? block(i + 1) : is_ring ? block(0) : NULL;
		node->back = is_ring ? block((i + BLOCKS - 1) % BLOCKS) : NULL;
	}
}

/* Has the blocks in memory that nothing else is known of. */
static void **mapped(int flags)
{
	void **words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < BLOCKS; i++)
		words[i + 7] = block(i);
	return words;
}

static void **moving;

/* Moves the references of a kind to a mapping that was not there before. */
static void move(void)
{
	void **old = moving;

	moving = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(moving, old, 4096);
	memset(old, 0, 4096);
}

static void hold_in_bulk(void)
{
	uint32_t *bulk = malloc(BULK), state = 1;

	for (int i = 0; i < BULK / 4; i++)
		bulk[i] = state = state * 1664525 + 1013904223;
	for (int i = 0; i < BLOCKS; i++)
		memcpy(bulk + 100000 + 40 * i, (void *[]){ block(i) }, 8);
	table[0] = bulk;
}

/* Blocks whose addresses were in memory that is freed: too large for the caches of threads, and
 * between blocks in use. */
__attribute__((noinline)) static void hold_in_freed(void)
{
	void **holders[BLOCKS], *volatile beside;

	for (int i = 0; i < BLOCKS; i++) {
		holders[i] = malloc(HOLDER);
		holders[i][300] = block(i);
		beside = malloc(HOLDER);
	}
	for (int i = 0; i < BLOCKS; i++)
		free(holders[i]);
	memset(holders, 0, sizeof(holders));
}

void *interior[BLOCKS], *tagged[BLOCKS], *copies[BLOCKS]; /* not static: the stores stay */
struct epoll_event packed[BLOCKS];
struct node *head;

#define KIND(name, want, action)                                                                                       \
	do {                                                                                                           \
		make(SIZE);                                                                                            \
		action;                                                                                                \
		wipe();                                                                                                \
		show(name, want);                                                                                      \
	} while (0)
#define EACH(statement)                                                                                                \
	for (int i = 0; i < BLOCKS; i++)                                                                               \
	statement

int main(void)
{
	EACH(pthread_key_create(&keys[i], NULL));
	KIND("lost", "lost", (void)0);
	KIND("static", "held", EACH(copies[i] = block(i)));
	KIND("stack", "held", start(on_stack, 1));
	KIND("tls", "held", start(with_locals, 1));
	KIND("keys", "held", start(with_keys, 1));
	KIND("register", "held", start(in_register, BLOCKS));
	KIND("epoll", "held", poll_all());
	KIND("timer", "held", time_all());
	KIND("packed", "held", EACH(packed[i].data.ptr = block(i)));
	KIND("tagged", "held", EACH(tagged[i] = (void *)(~noted[i] | 0xabcdUL << 48 | 3)));
	KIND("interior", "held", EACH(interior[i] = (char *)block(i) + SIZE - 8));
	KIND("shared", "held", mapped(MAP_SHARED));
	KIND("protected", "held", mprotect(mapped(MAP_PRIVATE), 4096, PROT_NONE));
	KIND("bulk", "held", hold_in_bulk());
	KIND("moving", "held", moving = mapped(MAP_PRIVATE));
	KIND("list", "held", (link_all(0), head = block(0)));
	KIND("lost-list", "lost", link_all(0));
	KIND("lost-ring", "lost", link_all(1));
	KIND("freed", "lost", hold_in_freed());
	make(300000);
	wipe();
	show("lost-large", "lost");
	make(300000);
	EACH(table[i] = i ? block(i) : table[0]);
	wipe();
	printf("kinds end\n");
	fflush(stdout);
	getchar(); /* "move" */
	move();
	printf("moved\n");
	fflush(stdout);
	return pause();
}
