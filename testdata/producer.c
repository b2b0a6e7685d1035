/* A program that samples its own heap, and reports each sampled object by the probes otel_memory:alloc and
 * otel_memory:free. Interval 1 samples every object. It reports nothing while no tool is attached.
 *
 *     producer INTERVAL N S
 *
 * It speaks by lines: prints "ready", allocates when ordered "go" and prints its holdings up to
 * "done", and exits at the end of its input. Ordered anything else, it leaks N objects of S bytes
 * in leak_here(). */
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A counter of a probe: the kernel raises it while a tool is attached. */
#define SEMAPHORE(name) __attribute__((section(".probes"))) volatile uint16_t otel_memory_##name##_semaphore

/* A note as sys/sdt.h makes it, whose arguments the assembler writes, and a probe with one. */
#define NOTE(name, arguments)                                                                                          \
	".pushsection .note.stapsdt,\"\",\"note\"\n"                                                                   \
	".balign 4\n"                                                                                                  \
	".4byte 992f-991f, 994f-993f, 3\n"                                                                             \
	"991: .asciz \"stapsdt\"\n"                                                                                    \
	"992: .balign 4\n"                                                                                             \
	"993: .8byte 990b, 0, otel_memory_" #name "_semaphore\n"                                                       \
	".asciz \"otel_memory\"\n"                                                                                     \
	".asciz \"" #name "\"\n"                                                                                       \
	".asciz \"" arguments "\"\n"                                                                                   \
	"994: .balign 4\n"                                                                                             \
	".popsection\n"

#define PROBE(name, arguments, ...) __asm__ volatile("990: nop\n" NOTE(name, arguments)::__VA_ARGS__ : "memory")

SEMAPHORE(alloc);
SEMAPHORE(free);
static double interval;
static __thread double left; /* bytes until the next sample; 0: not drawn yet */
static __thread unsigned short seed[3];
static char never_given[2]; /* no allocator returns their addresses */

static void draw(void)
{
	if (!seed[0]) { /* the same in each run */
		static unsigned short threads;

		seed[0] = 0x330e;
		seed[1] = 0xabcd;
		seed[2] = 0x1234 * __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
	}
	left = -log(1 - erand48(seed)) * interval;
}

/* Allocates, and reports the object if it is sampled. */
__attribute__((noinline)) static void *produce(size_t size)
{
	void *p = malloc(size);

	if (!otel_memory_alloc_semaphore)
		return p;
	if (interval <= 1) {
		PROBE(alloc, "8@%0 8@%1 8@%1", "r"(p), "r"(size));
		return p;
	}

	if (!left)
		draw();
	left -= size;
	if (left <= 0) {
		volatile uint64_t weight = lround(size / -expm1(-(double)size / interval));

		draw();
		PROBE(alloc, "8@%0 8@%1 8@%2", "r"(p), "r"(size), "m"(weight));
	}
	return p;
}

__attribute__((noinline)) static void consume(void *p)
{
	if (otel_memory_free_semaphore)
		PROBE(free, "8@%0", "r"(p));
	free(p);
}

__attribute__((noinline)) void leak_here(size_t size)
{
	char *p = produce(size);

	p[0] = 1;
}

#define CASE(name) __attribute__((noinline)) static void name(void)

CASE(case_churn)
{
	for (int i = 0; i < 10000; i++)
		consume(produce(96));
}

CASE(case_replaced)
{
	void *p = produce(1000);

	for (size_t size = 2000; size <= 5000; size += 1000) {
		consume(p);
		p = produce(size);
	}
}

static void *leak_1000(void *unused)
{
	for (int i = 0; i < 1000; i++)
		leak_here(96);
	return unused;
}

CASE(case_threads)
{
	pthread_t thread[8];

	for (int i = 0; i < 8; i++)
		pthread_create(&thread[i], NULL, leak_1000, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(thread[i], NULL);
}

#ifdef UNSUPPORTED
static volatile long counter;

__attribute__((noinline, used)) static void relative(void *p)
{
	PROBE(alloc, "8@%0 8@%1 8@%1", "r"(p), "m"(counter)); /* relative to the instruction pointer */
}
#endif

/* Arguments of other sizes and places than most compilers choose. */
__attribute__((noinline)) static void odd(char *p, volatile int *size, signed char weight)
{
	PROBE(alloc, "8@%0 -4@%1 -1@%2", "r"(p), "m"(*size), "r"(weight));
}

CASE(case_odd)
{
	volatile int size[2] = { -1, 100 };

	odd(never_given, &size[1], 120);
}

__attribute__((noinline)) static void constant(void *p)
{
	PROBE(alloc, "8@%0 4@%1 8@%2", "r"(p), "n"(30), "n"(3000));
}

CASE(case_constant)
{
	constant(never_given + 1);
}

/* Claims beyond reason. */
__attribute__((noinline)) static void forge(uint64_t pointer, uint64_t size, uint64_t weight)
{
	PROBE(alloc, "8@%0 8@%1 8@%2", "r"(pointer), "r"(size), "r"(weight));
}

__attribute__((noipa)) static void unreadable(uint64_t *size)
{
	PROBE(alloc, "8@%0 8@%1 8@%1", "r"(never_given), "m"(*size));
}

CASE(case_unreadable)
{
	unreadable((uint64_t *)8);
}

CASE(case_nothing)
{
	forge(0, 100, 100);
}

CASE(case_light)
{
	forge(0x10000, 100, 1);
}

CASE(case_weightless)
{
	forge(0x20000, 100, 0);
}

CASE(case_empty)
{
	forge(0x30000, 0, 0);
}

CASE(case_heavy)
{
	forge(0x40000, 1 << 20, ~0ull);
}

/* Two notes of one instruction, as a linker leaves them that folds identical code. */
__attribute__((noinline)) static void folded(uint64_t pointer, uint64_t size)
{
	__asm__ volatile("990: nop\n" NOTE(alloc, "8@%0 8@%1 8@%1") NOTE(alloc, "8@%0 8@%1 8@%1")::"r"(pointer),
			 "r"(size)
			 : "memory");
}

CASE(case_folded)
{
	folded(0x60000, 100);
}

CASE(case_twice)
{
	forge(0x50000, 100, 100);
	forge(0x50000, 200, 200);
}

static int is_order(const char *word)
{
	char line[64];

	if (!fgets(line, sizeof(line), stdin))
		exit(0);
	return !strncmp(line, word, strlen(word));
}

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

static void run_cases(void)
{
	case_churn();
	case_replaced();
	puts("case_replaced 1 5000");
	case_threads();
	puts("leak_here 8000 768000");
	case_odd();
	puts("case_odd 1 120");
	case_constant();
	puts("case_constant 100 3000");
	case_unreadable();
	case_nothing();
	case_light();
	puts("case_light 1 100");
	case_weightless();
	puts("case_weightless 1 100");
	case_empty();
	puts("case_empty 1 0");
	case_heavy();
	puts("case_heavy 1048576 1099511627776");
	case_folded();
	puts("case_folded 1 100");
	case_twice();
	puts("case_twice 1 200");
	consume(NULL);
	consume(malloc(5)); /* which has not been reported */
}

int main(int argc, char **argv)
{
	long objects = argc > 2 ? atol(argv[2]) : 0, size = argc > 3 ? atol(argv[3]) : 0;

	interval = argc > 1 ? atof(argv[1]) : 1;
	say("ready");
	for (;;) {
		if (is_order("go"))
			run_cases();
		else
			for (long i = 0; i < objects; i++)
				leak_here(size);
		say("done");
	}
}
