package probe

import (
	"bytes"
	"debug/elf"
	"slices"

	"golang.org/x/arch/x86/x86asm"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// A flow follows the code of a file's functions, to learn which of the allocator's functions one calls and where it returns.
type flow struct {
	file *symbol.File
	// imports are the names behind the file's pointers to functions.
	imports map[uint64]string
	// allocators tells the allocator's functions by name, of which the file's own are at some of addresses.
	allocators map[string]bool
	addresses  map[uint64]bool
}

// A course is what a function may do.
type course struct {
	entry uint64
	// end of its own code, beyond which it is not followed; 0: it is followed everywhere.
	end uint64
	// untilCall: each way is followed to the first call of an allocator's function alone.
	untilCall bool
	// checksNull: the way that a null pointer takes is not followed.
	checksNull bool
	// calls are the allocator's functions that it calls or jumps to: names, and addresses in the file.
	calls     map[string]bool
	addresses map[uint64]bool
	// exits are the addresses at which it, or what it has jumped to, returns.
	exits []uint64
	// open: it also goes on where that cannot be told.
	open bool

	pending []uint64
	seen    map[uint64]bool
	steps   int
}

const (
	maxSteps           = 4096 // instructions that are followed of a function
	maxExits           = 32   // by which a function that may throw returns
	longestInstruction = 15
	stretch            = 256 // bytes of code that are read at once
)

// forwards reports whether a function does nothing without calling another one of the allocator's. Of one that frees, the way
// that a null pointer takes does not count; of one that may throw, what lies outside its own code, where it throws.
func (f *flow) forwards(function Function, entry uint64) bool {
	c := newCourse(entry)
	c.untilCall, c.checksNull = true, function.Form == bpf.KernelCallFormCALL_FREE
	if size := f.file.Size(entry); function.Throws && size > 1 {
		c.end = entry + size
	}
	f.follow(c)
	return !c.open && len(c.exits) == 0 && c.callsAny()
}

// course gives all that a function may do.
func (f *flow) course(entry uint64) *course {
	c := newCourse(entry)
	f.follow(c)
	return c
}

func newCourse(entry uint64) *course {
	return &course{entry: entry, calls: make(map[string]bool), addresses: make(map[uint64]bool), seen: make(map[uint64]bool)}
}

func (c *course) callsAny() bool { return len(c.calls)+len(c.addresses) > 0 }

// follow walks through all ways that a function may take.
func (f *flow) follow(c *course) {
	if f.file.Machine() != elf.EM_X86_64 {
		c.open = true
		return
	}
	c.push(c.entry)
	for len(c.pending) > 0 && c.steps <= maxSteps {
		last := len(c.pending) - 1
		at := c.pending[last]
		c.pending = c.pending[:last]
		f.followStretch(c, at)
	}
	slices.Sort(c.exits)
}

func (c *course) push(address uint64) {
	if !c.seen[address] && !c.isOutside(address) {
		c.seen[address] = true
		c.pending = append(c.pending, address)
	}
}

func (c *course) isOutside(address uint64) bool {
	return c.end != 0 && (address < c.entry || address >= c.end)
}

// followStretch walks on until something ends the way or leads where it has been walked before.
func (f *flow) followStretch(c *course, at uint64) {
	var before x86asm.Inst
	var code []byte
	checksNull := c.checksNull && at == c.entry
	for {
		if c.steps++; c.steps > maxSteps {
			c.open = true
			return
		}
		if len(code) < longestInstruction {
			var err error
			if code, _, err = f.file.Code(at, stretch); err != nil {
				c.open = true
				return
			}
		}
		instruction, err := decode(code)
		if err != nil {
			c.open = true
			return
		}
		next := at + uint64(instruction.Len)
		if checksNull && isNullCheck(before, instruction) {
			if instruction.Op == x86asm.JNE { // goes on there
				c.push(target(instruction, next))
				return
			}
		} else if f.ends(c, instruction, at, next) {
			return
		}
		if c.seen[next] || c.isOutside(next) {
			return
		}
		c.seen[next] = true
		before, at, code = instruction, next, code[instruction.Len:]
	}
}

// decode is x86asm's, which does not know where indirect branches may land.
func decode(code []byte) (x86asm.Inst, error) {
	if bytes.HasPrefix(code, endbr64) {
		return x86asm.Inst{Op: x86asm.NOP, Len: len(endbr64)}, nil
	}
	return x86asm.Decode(code, 64)
}

// isNullCheck reports whether two instructions go separate ways for a first argument of 0.
func isNullCheck(test, jump x86asm.Inst) bool {
	return test.Op == x86asm.TEST && test.Args[0] == x86asm.RDI && test.Args[1] == x86asm.RDI &&
		(jump.Op == x86asm.JE || jump.Op == x86asm.JNE)
}
