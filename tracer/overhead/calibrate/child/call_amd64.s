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
