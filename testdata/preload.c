/* An allocator to be preloaded: malloc, calloc, realloc and free, and none of their relatives. It asks the C library
 * for 16 bytes more than it was asked for, so that a tracer that counts the C library's calls is
 * found out. With
 * SLOW_US defined, malloc of 1 MB or more takes that time. */
#include <stdlib.h>
#include <unistd.h>

#define MORE 16

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void __libc_free(void *p);

void *malloc(size_t size)
{
#ifdef SLOW_US
	if (size >= 1000000)
		usleep(SLOW_US);
#endif
	return size > size + MORE ? NULL : __libc_malloc(size + MORE);
}

void *calloc(size_t n, size_t size)
{
	return __libc_calloc(n, size > size + MORE ? size : size + MORE);
}

void *realloc(void *p, size_t size)
{
	return __libc_realloc(p, !size || size > size + MORE ? size : size + MORE);
}

void free(void *p)
{
	__libc_free(p);
}

/* A function of this file alone, of which the dynamic linker knows nothing. */
static __attribute__((used, noinline)) void *mine(size_t size) __asm__("valloc");
static void *mine(size_t size)
{
	return malloc(size);
}
