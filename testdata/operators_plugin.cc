/* A C++ library for programs that are not C++: use() calls operators new and delete, and leaves an
 * object of 1001, 1002, 1003 and 1008 bytes. It returns how many exceptions it has caught. */
#include <new>
#include <stddef.h>
#include <stdint.h>

static volatile size_t huge_size = SIZE_MAX / 2 - 4096;

static void *kept(void *p)
{
	__asm__ volatile("" : "+r"(p) : : "memory");
	return p;
}

extern "C" int use(void)
{
	int caught = 0;

	kept(::operator new(1001));
	kept(::operator new[](1002));
	kept(::operator new(1003, std::nothrow));
	kept(::operator new(1008, std::align_val_t(16)));
	::operator delete(kept(::operator new(1001)));
	::operator delete[](kept(::operator new[](1002)), size_t(1002));
	::operator delete(kept(::operator new(1008, std::align_val_t(16))), std::align_val_t(16));

	for (int i = 0; i < 3; i++) {
		try {
			kept(::operator new(huge_size));
		} catch (const std::bad_alloc &) {
			caught++;
		}
	}
	if (kept(::operator new(huge_size, std::nothrow)))
		return -1;
	return caught;
}
