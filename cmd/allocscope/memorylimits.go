//go:build cgo

package main

/*
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

// Where Go's runtime cannot reserve its heap or start a thread, it ends with a dump.
static const struct need {
	int resource;
	const char *name, *flag;
	rlim_t mib;
} needs[] = {
	{RLIMIT_AS, "address space", "-v", 2048}, // minAddressSpace of tracer/kernel
	{RLIMIT_DATA, "data memory", "-d", 256},
};

// A constructor runs before the runtime. The status is exit.Refused.
__attribute__((constructor)) static void check_limits(void) {
	for (unsigned long i = 0; i < sizeof(needs) / sizeof(needs[0]); i++) {
		const struct need *need = &needs[i];
		struct rlimit limit;

		if (getrlimit(need->resource, &limit) || limit.rlim_cur >> 20 >= need->mib)
			continue;
		dprintf(2, "error: the limit of %s is %lu MiB: allocscope needs %lu MiB "
			"(lift it: ulimit %s unlimited)\n", need->name,
			(unsigned long)limit.rlim_cur >> 20, (unsigned long)need->mib, need->flag);
		_exit(2);
	}
}
*/
import "C"
