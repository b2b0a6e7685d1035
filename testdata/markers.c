/* A program with all probes of our preloaded library, which it never calls. It prints how often each semaphore is
 * raised (interval, hold, start, alloc, free) when ordered so, prints "done", and exits at the end of its input. */
#include <stdint.h>
#include <stdio.h>

#define SEMAPHORE(name) __attribute__((section(".probes"))) volatile uint16_t name

SEMAPHORE(interval);
SEMAPHORE(hold);
SEMAPHORE(start);
SEMAPHORE(alloc);
SEMAPHORE(free_);

#ifdef __aarch64__
#define ARGUMENTS "8@1 8@2 8@3"
#else
#define ARGUMENTS "8@$1 8@$2 8@$3"
#endif

/* The notes are as in sys/sdt.h, by hand. */
__asm__(".macro probe provider, name, semaphore, arguments\n"
	"990: nop\n"
	".pushsection .note.stapsdt,\"\",\"note\"\n"
	".balign 4\n"
	".4byte 992f-991f, 994f-993f, 3\n"
	"991: .asciz \"stapsdt\"\n"
	"992: .balign 4\n"
	"993: .8byte 990b, 0, \\semaphore\n"
	".asciz \"\\provider\"\n"
	".asciz \"\\name\"\n"
	".asciz \"\\arguments\"\n"
	"994: .balign 4\n"
	".popsection\n"
	".endm\n"
	".text\n"
	"probe otel_memory, alloc, alloc, \"" ARGUMENTS "\"\n"
	"probe otel_memory, free, free_, \"" ARGUMENTS "\"\n"
	"probe allocscope, start, start\n"
	"probe allocscope, hold, hold\n"
	"probe allocscope, hold, hold\n"
	".rept 31\n"
	"probe allocscope, interval, interval\n"
	".endr\n");

int main(void)
{
	char line[64];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		printf("%d %d %d %d %d\ndone\n", interval, hold, start, alloc, free_);
		fflush(stdout);
	}
	return 0;
}
