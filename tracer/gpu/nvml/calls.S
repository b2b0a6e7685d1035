/* What go-nvml calls, so that a program with it starts everywhere. go-nvml leaves NVML's names open for the dynamic linker to
   fill in at their first call: where programs are bound as a whole (`-z now`, which hardened compilers default to, or
   LD_BIND_NOW) they end at their start with `undefined symbol`, and elsewhere at the call of a name that the driver lacks.
   Here each is a jump to an address that bind (bind.h) fills in, and before that, or without one, NVML's error for a missing
   function. They are hidden: the library's calls of itself do not come here. */
#define FUNCTION_NOT_FOUND 13 /* NVML_ERROR_FUNCTION_NOT_FOUND */

	.text
	.type absent, %function
absent:
#if defined(__x86_64__)
	endbr64
	mov $FUNCTION_NOT_FOUND, %eax
	ret
#define JUMP(slot) endbr64; jmp *slot(%rip)
#elif defined(__aarch64__)
	bti c
	mov w0, #FUNCTION_NOT_FOUND
	ret
#define JUMP(slot) bti c; adrp x16, slot; ldr x16, [x16, :lo12:slot]; br x16
#else
#error "no jump is written for this architecture: build with CGO_ENABLED=0"
#endif

#define NVML(name) \
	.text; .globl name; .hidden name; .type name, %function; name: JUMP(slot_##name); .size name, . - name; \
	.data; slot_##name: .quad absent; .quad text_##name; \
	.section .rodata; text_##name: .asciz #name;

	.data
	.balign 8
	.globl nvml_calls
	.hidden nvml_calls
nvml_calls:
#include "calls.inc"
	.data
	.quad 0, 0 /* the end */

	.section .note.GNU-stack, "", %progbits
