/* Every allocator function, each case in a function of its own. After "go" it prints one line per function that still
 * holds memory: NAME OBJECTS BYTES, then "done". That is the truth the tracer must find. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A case a line. */
// clang-format off
#define CASE __attribute__((noinline)) void
#define BASE __attribute__((noinline)) void *
#define KEEP(p) do { void *kept = (p); __asm__ volatile("" : : "r"(kept) : "memory"); } while (0)
#define HUGE_SIZE ((volatile size_t){ SIZE_MAX / 2 - 4096 })

static void holds(const char *name, long objects, long bytes) { printf("%s %ld %ld\n", name, objects, bytes); }

static void expect(int truth, const char *what)
{
	if (!truth) {
		printf("broken: %s\n", what);
		fflush(stdout);
		abort();
	}
}

#define OLDER 1000

static void *before_tracing[OLDER], *older;

CASE case_malloc(void) { for (int i = 0; i < 3; i++) KEEP(malloc(100)); holds(__func__, 3, 300); }
CASE case_malloc_zero(void) { KEEP(malloc(0)); holds(__func__, 1, 0); }
CASE case_malloc_fails(void) { void *p = malloc(HUGE_SIZE); expect(!p, "huge malloc"); KEEP(p); }
CASE case_calloc(void) { KEEP(calloc(10, 33)); holds(__func__, 1, 330); }
CASE case_calloc_overflow(void) { void *p = calloc((volatile size_t){ SIZE_MAX / 2 }, 3); expect(!p, "calloc overflow"); KEEP(p); }
CASE case_calloc_large_factor(void) { KEEP(calloc(1, (size_t)1 << 32)); holds(__func__, 1, 1L << 32); }

BASE base_grow(void) { void *p = malloc(10); KEEP(p); return p; }
CASE case_realloc_grow(void) { KEEP(realloc(base_grow(), 1000000)); holds(__func__, 1, 1000000); }
BASE base_shrink(void) { void *p = malloc(5000); KEEP(p); return p; }
CASE case_realloc_shrink(void) { KEEP(realloc(base_shrink(), 24)); holds(__func__, 1, 24); }
BASE base_fails(void) { void *p = malloc(50); KEEP(p); holds("base_fails", 1, 50); return p; }
CASE case_realloc_fails(void) { void *p = realloc(base_fails(), HUGE_SIZE); expect(!p, "huge realloc"); KEEP(p); }
BASE base_zero(void) { void *p = malloc(60); KEEP(p); return p; }
CASE case_realloc_zero(void) { void *p = realloc(base_zero(), (volatile size_t){ 0 }); expect(!p, "realloc(p, 0)"); KEEP(p); }
CASE case_realloc_null(void) { KEEP(realloc(NULL, 77)); holds(__func__, 1, 77); }
CASE case_realloc_older(void) { older = realloc(older, 9000); holds(__func__, 1, 9000); }
CASE case_reallocarray(void) { KEEP(reallocarray(NULL, 7, 11)); holds(__func__, 1, 77); }
BASE base_array(void) { void *p = malloc(51); KEEP(p); holds("base_array", 1, 51); return p; }
CASE case_reallocarray_overflow(void)
{
	void *p = reallocarray(base_array(), (volatile size_t){ SIZE_MAX / 2 }, 3);

	expect(!p, "reallocarray overflow");
	KEEP(p);
}

CASE case_posix_memalign(void) { void *p; expect(!posix_memalign(&p, 64, 500), "posix_memalign"); KEEP(p); holds(__func__, 1, 500); }
CASE case_posix_memalign_small(void) { void *p; expect(!posix_memalign(&p, 8, 501), "posix_memalign"); KEEP(p); holds(__func__, 1, 501); }
CASE case_posix_memalign_fails(void)
{
	void *p = (void *)1;

	expect(posix_memalign(&p, 3, 502) == EINVAL, "posix_memalign alignment");
	expect(posix_memalign(&p, 64, HUGE_SIZE) == ENOMEM, "huge posix_memalign");
	KEEP(p);
}
CASE case_aligned_alloc(void) { KEEP(aligned_alloc(64, 640)); holds(__func__, 1, 640); }
CASE case_memalign(void) { KEEP(memalign(8, 641)); holds(__func__, 1, 641); }
CASE case_valloc(void) { KEEP(valloc(642)); holds(__func__, 1, 642); }
CASE case_pvalloc(void) { KEEP(pvalloc(643)); holds(__func__, 1, 643); }
CASE case_strdup(void) { KEEP(strdup("twelve bytes")); holds("strdup", 1, 13); }
CASE case_free_null(void) { free((void *volatile){ NULL }); }
CASE case_free_older(void) { for (int i = 0; i < OLDER; i++) free(before_tracing[i]); }
CASE case_malloc_and_free(void) { void *p = malloc(64); KEEP(p); free(p); }

BASE base_other_thread(void) { void *p = malloc(70); KEEP(p); return p; }
static void *free_elsewhere(void *p) { free(p); return NULL; }
CASE case_other_thread(void)
{
	pthread_t thread;

	expect(!pthread_create(&thread, NULL, free_elsewhere, base_other_thread()), "thread");
	pthread_join(thread, NULL);
}

// clang-format on

static void wait_for_line(void)
{
	char line[64];

	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

static void say(const char *word)
{
	puts(word);
	fflush(stdout);
}

int main(void)
{
	for (int i = 0; i < OLDER; i++)
		before_tracing[i] = malloc(40);
	older = malloc(4001);
	say("ready");
	wait_for_line();
	case_malloc(), case_malloc_zero(), case_malloc_fails(), case_calloc(), case_calloc_overflow(),
		case_calloc_large_factor();
	case_realloc_grow(), case_realloc_shrink(), case_realloc_fails(), case_realloc_zero(), case_realloc_null(),
		case_realloc_older();
	case_reallocarray(), case_reallocarray_overflow();
	case_posix_memalign(), case_posix_memalign_small(), case_posix_memalign_fails();
	case_aligned_alloc(), case_memalign(), case_valloc(), case_pvalloc(), case_strdup();
	case_free_null(), case_free_older(), case_malloc_and_free(), case_other_thread();
	say("done");
	wait_for_line();
}
