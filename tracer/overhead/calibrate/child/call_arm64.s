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

// The next three are as clang 14 makes shim/shim.c. The countdown of a thread is in its TLS there.
TEXT shimMalloc<>(SB), NOSPLIT|NOFRAME, $0-0
	MOVD countdownAt<>(SB), R9
	MOVD (R9), R10
	SUBS R0, R10, R10
	BLS  sampled
	MOVD R10, (R9)
	MOVD ·plain(SB), R11
	JMP  (R11)

sampled:
	RET

TEXT shimFree<>(SB), NOSPLIT|NOFRAME, $0-0
	LSR   $16, R0, R9
	EOR   R0>>4, R9, R9
	AND   $0x3fff, R9, R9
	MOVD  $filter<>(SB), R10
	MOVBU (R10)(R9), R10
	CBNZ  R10, sampled
	MOVD  ·plain(SB), R11
	JMP   (R11)

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
