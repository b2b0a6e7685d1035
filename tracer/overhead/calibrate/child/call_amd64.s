#include "textflag.h"

// The kernel emulates push.
TEXT malloc<>(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ AX
	POPQ  AX
	RET

TEXT free<>(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ AX
	POPQ  AX
	RET

TEXT calloc<>(SB), NOSPLIT|NOFRAME, $0-0
	PUSHQ AX
	POPQ  AX
	RET

// The kernel single-steps test, the first instruction of free in glibc.
TEXT stepped<>(SB), NOSPLIT|NOFRAME, $0-0
	TESTQ DI, DI
	RET

// The next three are as clang 14 makes shim/shim.c. The countdown of a thread is in its TLS there.
TEXT shimMalloc<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVQ countdownAt<>(SB), AX
	MOVQ (AX), CX
	SUBQ DI, CX
	JLS  sampled
	MOVQ CX, (AX)
	MOVQ ·plain(SB), AX
	JMP  AX

sampled:
	RET

TEXT shimFree<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVL DI, AX
	SHRL $16, AX
	MOVL DI, CX
	SHRL $4, CX
	XORL AX, CX
	ANDL $0x3fff, CX
	LEAQ filter<>(SB), AX
	CMPB (AX)(CX*1), $0
	JNE  sampled
	MOVQ ·plain(SB), AX
	JMP  AX

sampled:
	RET

TEXT plain<>(SB), NOSPLIT|NOFRAME, $0-0
	RET

GLOBL countdown<>(SB), NOPTR, $8
DATA countdown<>+0(SB)/8, $0x100000
GLOBL countdownAt<>(SB), RODATA, $8
DATA countdownAt<>(SB)/8, $countdown<>(SB)
GLOBL filter<>(SB), NOPTR, $16384

GLOBL ·shimMalloc(SB), RODATA, $8
DATA ·shimMalloc(SB)/8, $shimMalloc<>(SB)
GLOBL ·shimFree(SB), RODATA, $8
DATA ·shimFree(SB)/8, $shimFree<>(SB)
GLOBL ·plain(SB), RODATA, $8
DATA ·plain(SB)/8, $plain<>(SB)

GLOBL ·malloc(SB), RODATA, $8
DATA ·malloc(SB)/8, $malloc<>(SB)
GLOBL ·free(SB), RODATA, $8
DATA ·free(SB)/8, $free<>(SB)
GLOBL ·calloc(SB), RODATA, $8
DATA ·calloc(SB)/8, $calloc<>(SB)
GLOBL ·stepped(SB), RODATA, $8
DATA ·stepped(SB)/8, $stepped<>(SB)

// func call(function uintptr, times int, argument uintptr)
// It passes the arguments by the C calling convention.
TEXT ·call(SB), NOSPLIT, $8-24
	MOVQ function+0(FP), BX
	MOVQ times+8(FP), R12
	MOVQ argument+16(FP), DI
	XORL SI, SI
	XORL AX, AX // where a refused return probe would jump to

again:
	CALL BX
	DECQ R12
	JNZ  again
	RET
