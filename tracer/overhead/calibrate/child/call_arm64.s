#include "textflag.h"

// All kernels emulate a compare and branch.
TEXT malloc<>(SB), NOSPLIT|NOFRAME, $0-0
	CBZ R1, return

return:
	RET

TEXT free<>(SB), NOSPLIT|NOFRAME, $0-0
	CBZ R1, return

return:
	RET

TEXT calloc<>(SB), NOSPLIT|NOFRAME, $0-0
	CBZ R1, return

return:
	RET

// All kernels single-step a comparison.
TEXT stepped<>(SB), NOSPLIT|NOFRAME, $0-0
	CMP $0, R0
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
TEXT ·call(SB), NOSPLIT, $16-24
	MOVD function+0(FP), R19
	MOVD times+8(FP), R20
	MOVD argument+16(FP), R0
	MOVD ZR, R1

again:
	CALL (R19)
	SUBS $1, R20
	BNE  again
	RET
