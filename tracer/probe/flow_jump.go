package probe

import (
	"bytes"
	"encoding/binary"
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// ends reports whether the way ends with an instruction, and keeps where else it leads.
func (f *flow) ends(c *course, instruction x86asm.Inst, at, next uint64) bool {
	switch instruction.Op {
	case x86asm.RET:
		c.exits = append(c.exits, at)
		return true
	case x86asm.UD2, x86asm.HLT, x86asm.INT:
		return true
	case x86asm.JMP:
		f.jump(c, instruction, next)
		return true
	case x86asm.CALL:
		to := f.destination(instruction, next)
		return neverReturns(to.name) || f.call(c, to) && c.untilCall
	}
	if _, jumps := instruction.Args[0].(x86asm.Rel); jumps {
		f.jump(c, instruction, next)
	}
	return false
}

// jump follows a jump unless it leads to one of the allocator's functions. Where a register says where to, that is not known.
func (f *flow) jump(c *course, instruction x86asm.Inst, next uint64) {
	to := f.destination(instruction, next)
	switch {
	case f.call(c, to):
	case to.address != 0:
		c.push(to.address)
	default:
		c.open = true
	}
}

// call keeps a call or a jump if it leads to another of the allocator's functions, and reports whether it does.
func (f *flow) call(c *course, to place) bool {
	switch {
	case to.address == c.entry:
		return false
	case to.address != 0 && f.addresses[to.address]:
		c.addresses[to.address] = true
	case f.allocators[to.name]:
		c.calls[to.name] = true
	default:
		return false
	}
	return true
}

// neverReturns reports whether a function by its name ends the process or throws. Behind a call of it the code of another
// function may begin.
func neverReturns(name string) bool {
	switch name {
	case "abort", "exit", "_exit", "__assert_fail", "__stack_chk_fail", "__cxa_throw", "__cxa_rethrow", "_Unwind_Resume", "_ZSt9terminatev":
		return true
	}
	return strings.HasPrefix(name, "_ZSt") && strings.Contains(name, "__throw_") // std::__throw_bad_alloc() and its like
}

// A place is where a jump leads: an address in the file, a name that the dynamic linker looks up, or both, if the file has a
// function of that name. Neither: it is not known.
type place struct {
	address uint64
	name    string
}

// destination of a jump or call, through the stub that stands in this file for a function of any.
func (f *flow) destination(instruction x86asm.Inst, next uint64) place {
	switch to := instruction.Args[0].(type) {
	case x86asm.Mem:
		if to.Base == x86asm.RIP && to.Index == 0 && to.Segment == 0 {
			return f.imported(next + uint64(to.Disp))
		}
	case x86asm.Rel:
		address := next + uint64(int64(to))
		code, _, err := f.file.Code(address, longestStub)
		if err != nil {
			return place{}
		}
		if pointer, ok := stub(code, address); ok {
			return f.imported(pointer)
		}
		return place{address: address}
	}
	return place{}
}

// imported is what a pointer that the dynamic linker fills in will lead to.
func (f *flow) imported(pointer uint64) place {
	to := place{name: f.imports[pointer]}
	if to.name != "" {
		own, _ := f.file.Export(to.name)
		to.address = own.Address
	}
	return to
}

const longestStub = 16

// stub reports whether code at an address is that of a procedure linkage table, jmp *pointer(%rip), and where the pointer is.
// x86-64 psABI, 5.2.
func stub(code []byte, address uint64) (pointer uint64, ok bool) {
	const prefix, size = 0xf2, 6 // bnd
	rest := bytes.TrimPrefix(code, endbr64)
	if len(rest) > 0 && rest[0] == prefix {
		rest = rest[1:]
	}
	if len(rest) < size || rest[0] != 0xff || rest[1] != 0x25 {
		return 0, false
	}
	end := address + uint64(len(code)-len(rest)) + size
	return end + uint64(int64(int32(binary.LittleEndian.Uint32(rest[2:])))), true
}

// target of a direct jump.
func target(instruction x86asm.Inst, next uint64) uint64 {
	distance, _ := instruction.Args[0].(x86asm.Rel)
	return next + uint64(int64(distance))
}
