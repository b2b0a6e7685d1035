/* Allocates from two functions that differ in nothing but how much stack they take, 16 bytes of code apart:
 *
 *     map     maps a page of code, which changes where code is known to be
 *     call    allocates 100 bytes in shallow() and 200 in deep(), and keeps both
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

void *shallow(size_t size, void *(*allocate)(size_t));
void *deep(size_t size, void *(*allocate)(size_t));

#define ALLOCATES(name, stack)                                                                                         \
	".p2align 4\n.globl " name "\n.type " name ", @function\n" name ":\n.cfi_startproc\nsub $" stack               \
	", %rsp\n.cfi_adjust_cfa_offset " stack "\ncall *%rsi\nadd $" stack ", %rsp\n.cfi_adjust_cfa_offset -" stack   \
	"\nret\n.cfi_endproc\n.size " name ", . - " name "\n"

__asm__(".text\n.p2align 6\n" ALLOCATES("shallow", "8") ALLOCATES("deep", "40"));

int main(void)
{
	char line[64];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "map\n")) {
			if (mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
				abort();
		} else {
			shallow(100, malloc);
			deep(200, malloc);
		}
		puts("done");
		fflush(stdout);
	}
}
