package probe

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// A Site is the instruction at which a function is probed.
type Site struct {
	Function Function
	// Offset in the file, in bytes. The kernel takes this offset, and no virtual address.
	Offset uint64
	// Reason why this instruction was chosen, for people.
	Reason string
	// Emulated reports whether the kernel emulates the instruction. It single-steps all others,
	// which costs eight times as much.
	Emulated bool

	exits         []Site   // the instructions that return from the function
	hasExits      bool     // they are known
	hasOtherExits bool     // besides, there are some that are not known
	names         []string // all of the function's names
	number        int      // of the function, among the functions of the process
	called        bool     // by other functions that are probed
}

// functionShift is the lowest bit of COOKIE_FUNCTION.
const functionShift = 16

// cookie returns the attach cookie, which describes the site to the BPF program.
func (s Site) cookie() uint64 {
	number := uint64(s.number) << functionShift & uint64(bpf.CookieFunction)
	cookie := uint64(s.Function.Form) | number
	for flag, isSet := range map[bpf.ProbeCookie]bool{
		bpf.CookieStepped: !s.Emulated,
		bpf.CookieThrows:  s.Function.Throws,
		bpf.CookieExits:   s.Function.Exits,
		bpf.CookieCalled:  s.called,
		bpf.CookieAligned: s.Function.aligns(),
		bpf.CookieTensor:  s.Function.Tensor,
	} {
		if isSet {
			cookie |= uint64(flag)
		}
	}
	return cookie
}

// endbr64 marks where an indirect branch may land (Intel CET). It does nothing, and x86asm does not
// decode it.
var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// errMisaligned says that a symbol is none of a function.
var errMisaligned = errors.New("its address is not that of an instruction")

// siteAt reads the first instructions of a function and chooses its site. The error may be
// errMisaligned: one probe there, and the kernel refuses all of the file.
func siteAt(file *symbol.File, function Function, address uint64) (Site, error) {
	const prologueLength = 64 // bytes
	code, offset, err := file.Code(address, prologueLength)
	if err != nil {
		return Site{}, err
	}
	if file.Machine() == elf.EM_AARCH64 && offset%instructionLenAArch64 != 0 {
		return Site{}, errMisaligned
	}
	return chooseSite(function, file.Machine(), code, offset), nil
}

// chooseSite returns the first instruction of a function that the kernel emulates. It has to lie on
// the way that every call takes, with the argument registers, the stack pointer and, on arm64, the
// link register as at the entry. If there is none, the site is the entry. code starts at the
// function's first instruction, which is at offset in the file.
func chooseSite(function Function, machine elf.Machine, code []byte, offset uint64) Site {
	site := Site{Function: function, Offset: offset}
	if machine == elf.EM_AARCH64 {
		return chooseSiteAArch64(site, code)
	}

	at := 0
	if bytes.HasPrefix(code, endbr64) {
		at = len(endbr64)
	}
	for at < len(code) {
		instruction, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			site.Reason = fmt.Sprintf("entry, single-stepped: unknown instruction at +%d", at)
			return site
		}
		text := x86asm.GNUSyntax(instruction, 0, nil)

		if emulated(code[at : at+instruction.Len]) {
			site.Offset, site.Emulated = offset+uint64(at), true
			site.Reason = fmt.Sprintf("+%d: the kernel emulates %q", at, text)
			return site
		}
		if !harmless(instruction, function.Arguments) {
			site.Reason = fmt.Sprintf("entry, single-stepped: %q at +%d touches what the probe needs",
				text, at)
			return site
		}
		at += instruction.Len
	}

	site.Reason = "entry, single-stepped: the kernel emulates none of the first instructions"
	return site
}

// emulated reports whether the kernel's uprobes emulate an instruction: push of a register, nop,
// call, jmp and the conditional jumps, without prefixes (branch_setup_insn and push_setup_insn,
// https://github.com/torvalds/linux/blob/v6.13/arch/x86/kernel/uprobes.c).
func emulated(code []byte) bool {
	switch first := code[0]; {
	case first >= 0x50 && first <= 0x57, first == 0x90, first == 0xe8, first == 0xe9, first == 0xeb:
		return true
	case first >= 0x70 && first <= 0x7f:
		return true
	case first == 0x41 && len(code) == 2:
		return code[1] >= 0x50 && code[1] <= 0x57
	case first == 0x0f && len(code) > 1:
		return code[1] >= 0x80 && code[1] <= 0x8f
	}

	return false
}

// argumentRegisters are the integer argument registers of the x86-64 psABI, section 3.2.3, in
// order.
var argumentRegisters = [][]x86asm.Reg{
	{x86asm.RDI, x86asm.EDI, x86asm.DI, x86asm.DIB},
	{x86asm.RSI, x86asm.ESI, x86asm.SI, x86asm.SIB},
	{x86asm.RDX, x86asm.EDX, x86asm.DX, x86asm.DL, x86asm.DH},
	{x86asm.RCX, x86asm.ECX, x86asm.CX, x86asm.CL, x86asm.CH},
	{x86asm.R8, x86asm.R8L, x86asm.R8W, x86asm.R8B},
}

// frameRegisters are where a stack walk starts.
var frameRegisters = [][]x86asm.Reg{
	{x86asm.RSP, x86asm.ESP, x86asm.SP, x86asm.SPB},
	{x86asm.RBP, x86asm.EBP, x86asm.BP, x86asm.BPB},
}

// harmless reports whether an instruction falls through, and does not write the frame registers or
// the first argument registers. It knows the instructions that compilers put first in a function.
// All others count as harmful.
func harmless(instruction x86asm.Inst, arguments int) bool {
	kept := append(argumentRegisters[:arguments:arguments], frameRegisters...)
	switch instruction.Op {
	case x86asm.NOP, x86asm.CMP, x86asm.TEST:
		return true
	case x86asm.MUL: // writes RDX:RAX
		return !isOneOf(x86asm.RDX, kept)
	case x86asm.MOV, x86asm.LEA, x86asm.XOR, x86asm.MOVZX, x86asm.MOVSXD, x86asm.ADD, x86asm.SUB,
		x86asm.AND, x86asm.OR, x86asm.SHL, x86asm.SHR, x86asm.SAR, x86asm.NEG, x86asm.NOT,
		x86asm.IMUL:
	default:
		return false
	}

	written, ok := instruction.Args[0].(x86asm.Reg)
	if instruction.Op == x86asm.IMUL && instruction.Args[1] == nil {
		written = x86asm.RDX
	}
	return !ok || !isOneOf(written, kept) // not ok: it writes memory
}

func isOneOf(written x86asm.Reg, kept [][]x86asm.Reg) bool {
	return slices.ContainsFunc(kept, func(aliases []x86asm.Reg) bool {
		return slices.Contains(aliases, written)
	})
}
