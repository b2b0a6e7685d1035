package probe

import (
	"encoding/binary"
	"fmt"
	"slices"

	"golang.org/x/arch/arm64/arm64asm"
)

const instructionLenAArch64 = 4 // bytes

// chooseSiteAArch64 is chooseSite on arm64. Most functions begin with a store of the frame record,
// which the kernel single-steps, and behind which a return probe would come too late: the return
// address is saved already. An instruction that the kernel refuses to probe is passed over, too.
func chooseSiteAArch64(site Site, code []byte) Site {
	entry, isProbeable := site.Offset, false
	for at := 0; at+instructionLenAArch64 <= len(code); at += instructionLenAArch64 {
		word := binary.LittleEndian.Uint32(code[at:])
		text := textAArch64(code[at:])

		if emulatedAArch64(word) {
			site.Offset, site.Emulated = entry+uint64(at), true
			site.Reason = fmt.Sprintf("+%d: the kernel emulates %q", at, text)
			return site
		}
		if !isProbeable && !refusedAArch64(word) {
			isProbeable = true
			site.Offset = entry + uint64(at)
			site.Reason = fmt.Sprintf("+%d, single-stepped: the kernel emulates no instruction before "+
				"the registers change", at)
		}
		if !harmlessAArch64(code[at:], site.Function.Arguments) {
			break
		}
	}

	if !isProbeable {
		site.Reason = "entry: the kernel refuses to probe the first instructions"
	}
	return site
}

// textAArch64 returns an instruction as objdump writes it.
func textAArch64(code []byte) string {
	instruction, err := arm64asm.Decode(code)
	if err != nil {
		return fmt.Sprintf("%#08x", binary.LittleEndian.Uint32(code))
	}
	return arm64asm.GNUSyntax(instruction)
}

// A pattern is true of the instruction words that have these bits under a mask.
type pattern struct{ mask, bits uint32 }

func isOneOfPatterns(word uint32, patterns []pattern) bool {
	return slices.ContainsFunc(patterns, func(p pattern) bool { return word&p.mask == p.bits })
}

// emulatedPatterns are the instructions that all kernels emulate. Newer ones emulate nop as well.
//
// https://github.com/torvalds/linux/blob/v6.12/arch/arm64/kernel/probes/decode-insn.c
// https://github.com/torvalds/linux/blob/v6.12/arch/arm64/include/asm/insn.h
var emulatedPatterns = []pattern{
	{0xff000010, 0x54000000}, // b.cond
	{0x7e000000, 0x34000000}, // cbz, cbnz
	{0x7e000000, 0x36000000}, // tbz, tbnz
	{0x1f000000, 0x10000000}, // adr, adrp
	{0x7c000000, 0x14000000}, // b, bl
	{0xfffffc1f, 0xd61f0000}, // br
	{0xfffffc1f, 0xd63f0000}, // blr
	{0xfffffc1f, 0xd65f0000}, // ret
}

func emulatedAArch64(word uint32) bool { return isOneOfPatterns(word, emulatedPatterns) }

// refusedPatterns are instructions at which the kernel places no probe: those that would not work at
// another address or under a single step.
var refusedPatterns = []pattern{
	{0x3b000000, 0x18000000}, // ldr, ldrsw, prfm of a literal
	{0x3f800000, 0x08000000}, // exclusive loads and stores
	{0xff000000, 0xd4000000}, // svc, hvc, smc, brk, hlt
	{0xfe000000, 0xd6000000}, // retaa, braa and their like, eret; br, blr and ret are emulated
	{0xfff8f01f, 0xd500401f}, // msr of an immediate
	{0xfff00000, 0xd5100000}, // msr of a register
	{0x3b200c00, 0x19000400}, // copies and sets of memory (FEAT_MOPS), on newer kernels
}

// hints are instructions that do nothing on a processor that does not know them. The kernel
// places probes at steppableHints alone (aarch64_insn_is_steppable_hint).
var (
	hints          = pattern{0xfffff01f, 0xd503201f}
	steppableHints = []pattern{
		{0xffffffff, 0xd503201f}, // nop
		{0xffffffff, 0xd50320ff}, // xpaclri
		{0xffffff3f, 0xd503211f}, // pacia1716, pacib1716, autia1716, autib1716
		{0xffffff1f, 0xd503231f}, // paciaz, paciasp, autiaz, autiasp and the same of key B
		landingPads,
	}
)

func refusedAArch64(word uint32) bool {
	if word&hints.mask == hints.bits {
		return !isOneOfPatterns(word, steppableHints)
	}
	return isOneOfPatterns(word, refusedPatterns)
}

// landingPads are bti and its variants. They do nothing, and arm64asm does not know them.
var landingPads = pattern{0xffffff3f, 0xd503241f}

// harmlessAArch64 is harmless on arm64. It knows the instructions that compilers put first in a
// function; all others count as harmful, such as paciasp, which signs the link register.
func harmlessAArch64(code []byte, arguments int) bool {
	if word := binary.LittleEndian.Uint32(code); word&landingPads.mask == landingPads.bits {
		return true
	}
	instruction, err := arm64asm.Decode(code)
	if err != nil {
		return false
	}

	switch instruction.Op {
	case arm64asm.NOP, arm64asm.CMP, arm64asm.CMN, arm64asm.TST, arm64asm.CCMP, arm64asm.CCMN:
		return true
	case arm64asm.STR, arm64asm.STRB, arm64asm.STRH, arm64asm.STUR, arm64asm.STP:
		return !writesBack(instruction) && !storesLink(instruction)
	case arm64asm.LDR, arm64asm.LDRB, arm64asm.LDRH, arm64asm.LDRSW, arm64asm.LDUR:
		return !writesBack(instruction) && writesScratch(instruction, arguments)
	case arm64asm.MOV, arm64asm.MOVZ, arm64asm.MOVN, arm64asm.MOVK, arm64asm.MVN, arm64asm.NEG,
		arm64asm.ADD, arm64asm.ADDS, arm64asm.SUB, arm64asm.SUBS, arm64asm.AND, arm64asm.ANDS,
		arm64asm.ORR, arm64asm.ORN, arm64asm.EOR, arm64asm.BIC, arm64asm.LSL, arm64asm.LSR,
		arm64asm.ASR, arm64asm.UBFX, arm64asm.SBFX, arm64asm.UBFIZ, arm64asm.SBFIZ, arm64asm.UXTB,
		arm64asm.UXTH, arm64asm.SXTW, arm64asm.MUL, arm64asm.MADD, arm64asm.MSUB, arm64asm.UMULH,
		arm64asm.UMULL, arm64asm.UMADDL, arm64asm.CSEL, arm64asm.CSINC, arm64asm.CSET, arm64asm.CINC,
		arm64asm.CLZ, arm64asm.MRS:
		return writesScratch(instruction, arguments)
	}

	return false
}

// writesBack reports whether a load or store changes its base register.
func writesBack(instruction arm64asm.Inst) bool {
	return slices.ContainsFunc(instruction.Args[:], func(argument arm64asm.Arg) bool {
		memory, ok := argument.(arm64asm.MemImmediate)
		return ok && memory.Mode != arm64asm.AddrOffset
	})
}

// storesLink reports whether a store saves the link register: a return probe would come too late.
func storesLink(instruction arm64asm.Inst) bool {
	return slices.Contains(instruction.Args[:], arm64asm.Arg(arm64asm.X30))
}

// writesScratch reports whether the register that an instruction writes, its first operand, is a
// general one that is none of the first argument registers, the frame pointer, the link register and
// the stack pointer.
func writesScratch(instruction arm64asm.Inst, arguments int) bool {
	written, ok := instruction.Args[0].(arm64asm.Reg)
	if !ok {
		stack, ok := instruction.Args[0].(arm64asm.RegSP)
		if !ok || stack == arm64asm.RegSP(arm64asm.SP) || stack == arm64asm.RegSP(arm64asm.WSP) {
			return false
		}
		written = arm64asm.Reg(stack)
	}

	const framePointer, linkRegister = 29, 30
	number := int(written - arm64asm.X0)
	if written < arm64asm.X0 {
		number = int(written - arm64asm.W0)
	}
	return number >= arguments && number != framePointer && number != linkRegister && number <= 31
}
