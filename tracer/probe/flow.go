package probe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// An analyzer follows the control flow of a file's functions: which allocator functions they call,
// and where they return.
type analyzer struct {
	file *symbol.File
	// imports are the names of the functions behind the file's pointers, its global offset table.
	imports map[uint64]string
	// allocators are the names of the allocator functions, and addresses where the file's own are.
	allocators map[string]bool
	addresses  map[uint64]bool
}

// A controlFlow has the ways that the code of a function may take.
type controlFlow struct {
	entry uint64
	// end of the function's own code, beyond which it is not followed; 0: there is no bound.
	end uint64
	// untilCall: no path is followed beyond its first call of an allocator function.
	untilCall bool
	// skipsNull: the path of a null pointer as first argument is not followed.
	skipsNull bool

	// calls and callAddresses are the allocator functions that it calls or jumps to: by name, and
	// by address in the file.
	calls         map[string]bool
	callAddresses map[uint64]bool
	// returns are the addresses of the instructions that return, sorted. A function that it has
	// jumped to (a tail call) has some of them.
	returns []uint64
	// memsets are the addresses of jumps to memset(pointer, 0, size), sorted: the function returns
	// from there, and returns the pointer.
	memsets []uint64
	// isIncomplete: some paths could not be followed.
	isIncomplete bool

	pending      []uint64 // basic blocks
	seen         map[uint64]bool
	instructions int
}

const (
	maxInstructions   = 4096 // of one function
	maxReturns        = 32   // of a function that is followed by them
	maxInstructionLen = 15   // bytes, Intel SDM volume 2, section 2.3.11
	readLength        = 256  // bytes of code that are read at once
)

// forwards reports whether a function does nothing without a call of another allocator function.
// The path of a null pointer does not count for a function that frees. For one that may throw, code
// outside its own does not count: there it throws.
func (a *analyzer) forwards(function Function, entry uint64) bool {
	flow := newControlFlow(entry)
	flow.untilCall, flow.skipsNull = true, function.Form == bpf.CallFree
	if size := a.file.Size(entry); function.Throws && size > 1 {
		flow.end = entry + size
	}
	a.follow(flow)
	return !flow.isIncomplete && len(flow.returns)+len(flow.memsets) == 0 && flow.callsAny()
}

// controlFlow returns all that a function may do.
func (a *analyzer) controlFlow(entry uint64) *controlFlow {
	flow := newControlFlow(entry)
	a.follow(flow)
	return flow
}

func newControlFlow(entry uint64) *controlFlow {
	return &controlFlow{
		entry: entry, calls: make(map[string]bool), callAddresses: make(map[uint64]bool),
		seen: make(map[uint64]bool),
	}
}

func (f *controlFlow) callsAny() bool { return len(f.calls)+len(f.callAddresses) > 0 }

// follow follows all paths from the entry.
func (a *analyzer) follow(flow *controlFlow) {
	if a.file.Machine() != elf.EM_X86_64 {
		flow.isIncomplete = true
		return
	}

	flow.push(flow.entry)
	for len(flow.pending) > 0 && flow.instructions <= maxInstructions {
		last := len(flow.pending) - 1
		at := flow.pending[last]
		flow.pending = flow.pending[:last]
		if !a.followBlock(flow, at) {
			flow.isIncomplete = true
		}
	}

	slices.Sort(flow.returns)
	slices.Sort(flow.memsets)
}

func (f *controlFlow) push(address uint64) {
	if !f.seen[address] && !f.isOutside(address) {
		f.seen[address] = true
		f.pending = append(f.pending, address)
	}
}

func (f *controlFlow) isOutside(address uint64) bool {
	return f.end != 0 && (address < f.entry || address >= f.end)
}

// followBlock follows instructions until one ends the path, or until they have been seen. ok is
// false if they cannot be decoded, or are too many.
func (a *analyzer) followBlock(flow *controlFlow, at uint64) (ok bool) {
	var before x86asm.Inst
	var code []byte
	skipsNull := flow.skipsNull && at == flow.entry
	for {
		if flow.instructions++; flow.instructions > maxInstructions {
			return false
		}
		if len(code) < maxInstructionLen {
			var err error
			if code, _, err = a.file.Code(at, readLength); err != nil {
				return false
			}
		}
		instruction, err := decode(code)
		if err != nil {
			return false
		}

		next := at + uint64(instruction.Len)
		if skipsNull && isNullCheck(before, instruction) {
			if instruction.Op == x86asm.JNE { // a pointer jumps
				flow.push(jumpTarget(instruction, next))
				return true
			}
		} else if a.endsPath(flow, instruction, at, next) {
			return true
		}
		if flow.seen[next] || flow.isOutside(next) {
			return true
		}
		flow.seen[next] = true
		before, at, code = instruction, next, code[instruction.Len:]
	}
}

// decode decodes an instruction, also endbr64.
func decode(code []byte) (x86asm.Inst, error) {
	if bytes.HasPrefix(code, endbr64) {
		return x86asm.Inst{Op: x86asm.NOP, Len: len(endbr64)}, nil
	}
	return x86asm.Decode(code, 64)
}

// isNullCheck reports whether two instructions branch on a first argument of 0.
func isNullCheck(test, jump x86asm.Inst) bool {
	return test.Op == x86asm.TEST && test.Args[0] == x86asm.RDI && test.Args[1] == x86asm.RDI &&
		(jump.Op == x86asm.JE || jump.Op == x86asm.JNE)
}

// endsPath reports whether the path ends with an instruction, and pushes its branches.
func (a *analyzer) endsPath(flow *controlFlow, instruction x86asm.Inst, at, next uint64) bool {
	switch instruction.Op {
	case x86asm.RET:
		flow.returns = append(flow.returns, at)
		return true
	case x86asm.UD2, x86asm.HLT, x86asm.INT:
		return true
	case x86asm.JMP:
		if a.destination(instruction, next).isMemset() {
			flow.memsets = append(flow.memsets, at)
		} else {
			a.jump(flow, instruction, next)
		}
		return true
	case x86asm.CALL:
		to := a.destination(instruction, next)
		return neverReturns(to.name) || a.call(flow, to) && flow.untilCall
	}

	if _, jumps := instruction.Args[0].(x86asm.Rel); jumps {
		a.jump(flow, instruction, next)
	}
	return false
}

// jump follows a jump, unless it is a tail call of an allocator function. The destination of an
// indirect jump is unknown.
func (a *analyzer) jump(flow *controlFlow, instruction x86asm.Inst, next uint64) {
	to := a.destination(instruction, next)
	switch {
	case a.call(flow, to):
	case to.address != 0:
		flow.push(to.address)
	default:
		flow.isIncomplete = true
	}
}

// call notes a call or a jump to another allocator function, and reports whether it is one.
func (a *analyzer) call(flow *controlFlow, to destination) bool {
	switch {
	case to.address == flow.entry:
		return false
	case to.address != 0 && a.addresses[to.address]:
		flow.callAddresses[to.address] = true
	case a.allocators[to.name]:
		flow.calls[to.name] = true
	default:
		return false
	}

	return true
}

// neverReturns reports whether a function by its name ends the process or throws. The code after a
// call of it may be another function's.
func neverReturns(name string) bool {
	switch name {
	case "abort", "exit", "_exit", "__assert_fail", "__stack_chk_fail", "__cxa_throw", "__cxa_rethrow",
		"_Unwind_Resume", "_ZSt9terminatev":
		return true
	}
	// std::__throw_bad_alloc() and its relatives.
	return strings.HasPrefix(name, "_ZSt") && strings.Contains(name, "__throw_")
}

// A destination is where a jump or a call leads: an address in the file, a name that the dynamic
// linker resolves, or both if the file itself exports the name. Neither: it is unknown.
type destination struct {
	address uint64
	name    string
	isStub  bool // it is reached through a stub of the procedure linkage table
}

// isMemset reports whether a function that returns memory leads to memset, the last that calloc
// does. Within the C library the stub has no name: the linker chooses among several memsets
// (R_X86_64_IRELATIVE). It chooses among other functions as well, but none of these returns memory.
func (d destination) isMemset() bool { return d.name == "memset" || d.name == "" && d.isStub }

// destination returns where a jump or a call leads, through the stub of the procedure linkage
// table if it goes to one.
func (a *analyzer) destination(instruction x86asm.Inst, next uint64) destination {
	switch to := instruction.Args[0].(type) {
	case x86asm.Mem:
		if to.Base == x86asm.RIP && to.Index == 0 && to.Segment == 0 {
			return a.imported(next + uint64(to.Disp))
		}
	case x86asm.Rel:
		address := next + uint64(int64(to))
		code, _, err := a.file.Code(address, maxStubLength)
		if err != nil {
			return destination{}
		}
		if pointer, ok := pltStub(code, address); ok {
			to := a.imported(pointer)
			to.isStub = true
			return to
		}
		return destination{address: address}
	}

	return destination{}
}

// imported returns where a pointer that the dynamic linker fills in will lead.
func (a *analyzer) imported(pointer uint64) destination {
	to := destination{name: a.imports[pointer]}
	if to.name != "" {
		own, _ := a.file.Export(to.name)
		to.address = own.Address
	}
	return to
}

const maxStubLength = 16 // bytes

// pltStub returns the pointer of a stub of the procedure linkage table, jmp *pointer(%rip). ok is
// false if the code is none. https://gitlab.com/x86-psABIs/x86-64-ABI, section 5.2.
func pltStub(code []byte, address uint64) (pointer uint64, ok bool) {
	const bnd, size = 0xf2, 6
	rest := bytes.TrimPrefix(code, endbr64)
	if len(rest) > 0 && rest[0] == bnd {
		rest = rest[1:]
	}
	if len(rest) < size || rest[0] != 0xff || rest[1] != 0x25 {
		return 0, false
	}
	end := address + uint64(len(code)-len(rest)) + size
	return end + uint64(int64(int32(binary.LittleEndian.Uint32(rest[2:])))), true
}

// jumpTarget returns where a direct jump leads.
func jumpTarget(instruction x86asm.Inst, next uint64) uint64 {
	distance, _ := instruction.Args[0].(x86asm.Rel)
	return next + uint64(int64(distance))
}
