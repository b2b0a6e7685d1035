/* A program without a C library, and so without malloc; with -m32 it is a 32-bit one. Built with
 *
 *     -nostdlib -static -ffreestanding -fno-stack-protector -fno-omit-frame-pointer
 *
 * It prints "ready"; after "go" it maps memory and moves the break, prints the truth as mappings.c does, and prints
 * "done".
 */

#define PAGE 4096L
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
	say("holds map_here mmap 1 40960 102400\n");
}

static long brk_end;

CASE move_break(void)
{
	brk_end = call(BRK, brk_end + 40 * PAGE, 0, 0, 0, 0);
	touch((char *)(brk_end - 40 * PAGE), 15);
	say("heap 61440\n");
	say("allocator 163840\n");
}

CASE move_break_up_and_down(void)
{
	call(BRK, brk_end + 10 * PAGE, 0, 0, 0, 0);
	touch((char *)brk_end, 10);
	call(BRK, brk_end, 0, 0, 0, 0);
	/* between two readings of the maps: nobody sees it */
}

__attribute__((used)) void run(void)
{
	brk_end = (call(BRK, 0, 0, 0, 0, 0) + PAGE - 1) / PAGE * PAGE;
	call(BRK, brk_end, 0, 0, 0, 0);
	say("ready\n");
	wait_for_line();
	map_here();
	move_break();
	move_break_up_and_down();
	say("reserved 102400\n");
	say("done\n");
	wait_for_line();
	call(EXIT, 0, 0, 0, 0, 0);
}

#ifdef __x86_64__
#define SP "%rsp"
#define PC "%rip"
#else
#define SP "%esp"
#define PC "%eip"
#endif
/* No caller: the return address is undefined, as in the C library's own _start. */
__asm__(".globl _start\n_start: .cfi_startproc\n\t.cfi_undefined " PC "\n\txor %ebp, %ebp\n\tand $-16, " SP
	"\n\tcall run\n\thlt\n\t.cfi_endproc");
