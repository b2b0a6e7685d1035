/* A program without a C library, and so without malloc; with -m32 it is a 32-bit one. Built with
 *
 *     -nostdlib -static -ffreestanding -fno-stack-protector -fno-omit-frame-pointer
 *
 * It prints "ready"; after "go" it maps memory and moves the break, prints the truth as
 * mappings.c does, and prints
 * "done".
 */

#define CASE __attribute__((noinline)) void
#define INLINE static inline __attribute__((always_inline))

#ifdef __x86_64__
#define READ 0
#define WRITE 1
#define MMAP 9
#define BRK 12
#define EXIT 60
INLINE long call(long number, long a, long b, long c, long d, long e)
{
	register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = 0;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "0"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}
#elif defined(__aarch64__)
#define READ 63
#define WRITE 64
#define MMAP 222
#define BRK 214
#define EXIT 93
INLINE long call(long number, long a, long b, long c, long d, long e)
{
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = 0;

	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}
#else
#define READ 3
#define WRITE 4
#define MMAP 192 /* mmap2 */
#define BRK 45
#define EXIT 1
INLINE long call(long number, long a, long b, long c, long d, long e)
{
	long result;

	__asm__ volatile("push %%ebp\n\txor %%ebp, %%ebp\n\tint $0x80\n\tpop %%ebp"
			 : "=a"(result)
			 : "0"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "memory");
	return result;
}
#endif

static void say(const char *line)
{
	long length = 0;

	while (line[length])
		length++;
	call(WRITE, 1, (long)line, length, 0, 0);
}

static long page_size;
#define PAGE page_size

/* Prints a space and the size of some pages. */
static void say_pages(int pages)
{
	char digits[24];
	int at = sizeof(digits) - 1;

	digits[at] = 0;
	for (unsigned long rest = pages * PAGE; rest; rest /= 10)
		digits[--at] = '0' + rest % 10;
	digits[--at] = ' ';
	say(digits + at);
}

static void wait_for_line(void)
{
	char c = 0;

	while (c != '\n')
		if (call(READ, 0, (long)&c, 1, 0, 0) != 1)
			call(EXIT, 0, 0, 0, 0, 0);
}

INLINE void touch(volatile char *p, int pages)
{
	for (int i = 0; i < pages; i++)
		p[i * PAGE] = 1;
}

CASE map_here(void)
{
	touch((char *)call(MMAP, 0, 25 * PAGE, 3, 0x22, -1), 10); /* readable and writable; private and anonymous */
	say("holds map_here mmap 1");
	say_pages(10);
	say_pages(25);
	say("\n");
}

static long brk_end;

CASE move_break(void)
{
	brk_end = call(BRK, brk_end + 40 * PAGE, 0, 0, 0, 0);
	touch((char *)(brk_end - 40 * PAGE), 15);
	say("heap");
	say_pages(15);
	say("\nallocator");
	say_pages(40);
	say("\n");
}

CASE move_break_up_and_down(void)
{
	call(BRK, brk_end + 10 * PAGE, 0, 0, 0, 0);
	touch((char *)brk_end, 10);
	call(BRK, brk_end, 0, 0, 0, 0);
	/* between two readings of the maps: nobody sees it */
}

/* Finds the page size in the auxiliary vector, behind the arguments and the environment. */
static void find_page_size(long *stack)
{
	const long at_pagesz = 6;
	long *word = stack + 1 + stack[0] + 1;

	while (*word++)
		;
	while (*word != at_pagesz)
		word += 2;
	page_size = word[1];
}

__attribute__((used)) void run(long *stack)
{
	find_page_size(stack);
	brk_end = (call(BRK, 0, 0, 0, 0, 0) + PAGE - 1) / PAGE * PAGE;
	call(BRK, brk_end, 0, 0, 0, 0);
	say("ready\n");
	wait_for_line();
	map_here();
	move_break();
	move_break_up_and_down();
	say("reserved");
	say_pages(25);
	say("\ndone\n");
	wait_for_line();
	call(EXIT, 0, 0, 0, 0, 0);
}

/* No caller: the return address is undefined, as in the C library's own _start. */
#ifdef __x86_64__
#define START "rip\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall run\n\thlt"
#elif defined(__aarch64__)
#define START "x30\n\tmov x29, #0\n\tmov x0, sp\n\tbl run\n\tbrk #0"
#else
#define START                                                                                                          \
	"eip\n\txor %ebp, %ebp\n\tmov %esp, %eax\n\tand $-16, %esp\n\tsub $12, %esp\n\tpush %eax\n\tcall run\n\thlt"
#endif
__asm__(".globl _start\n_start: .cfi_startproc\n\t.cfi_undefined " START "\n\t.cfi_endproc");
