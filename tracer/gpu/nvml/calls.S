/* The functions of NVML that go-nvml calls, so that the program starts without NVML. go-nvml
   leaves them undefined, for the dynamic linker to bind lazily. With immediate binding (`-z now`,
   the default of hardened compilers, or LD_BIND_NOW) such a program ends at its start with
   `undefined symbol`; with lazy binding it ends when it calls a function that the driver lacks.
   Here each function jumps to an address that bind_nvml (bind.h) sets; until then, it returns
   NVML_ERROR_FUNCTION_NOT_FOUND. The symbols are hidden, so that the library does not resolve its
   own calls to them. */
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
