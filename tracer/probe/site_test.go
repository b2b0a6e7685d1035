package probe

import (
	"debug/elf"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// atEntry is the expectation of a case whose site is the entry, single-stepped.
const atEntry = -1

// prologues are the first instructions of functions, and the byte at which they are probed with one
// and with three arguments.
var prologues = []struct {
	name, assembly string
	one, three     int
}{
	{"push behind endbr64", "endbr64; push %rbp", 4, 4},
	{"push", "push %rbx", 0, 0},
	{"push of a new register", "push %r12", 0, 0},
	{"free of glibc", "test %rdi,%rdi; je .+40; push %rbp", 3, 3},
	{"first of the conditional jumps", "test %rdi,%rdi; jo .+40", 3, 3},
	{"last of the conditional jumps", "test %rdi,%rdi; jg .+40", 3, 3},
	{"near conditional jump", "endbr64; cmp $7,%rdi; ja .+4000", 8, 8},
	{"jump", "jmp .+50", 0, 0},
	{"near jump", "jmp .+5000", 0, 0},
	{"call", "call .+5000", 0, 0},
	{"nop", "nop; push %rbx", 0, 0},
	{"long nop", ".byte 0x66,0x0f,0x1f,0x44,0,0; push %rbx", 6, 6},
	{"copies and a jump", "mov %rdi,%rax; mov %rsi,%rcx; mov %edx,%r8d; jmp .+50", 9, 9},
	{"canary", "mov %fs:0x28,%rax; push %rbx", 9, 9},
	{"store", "mov %rdi,-8(%rsp); push %rbx", 5, 5},
	{"zeroes what one argument does not need", "xor %edx,%edx; push %rbx", 2, atEntry},
	{"loads what one argument does not need", "lea 8(%rdi),%rsi; push %rbx", 4, atEntry},
	{"one byte of the third", "mov $1,%dh; push %rbx", 2, atEntry},
	{"one byte of the second", "mov $1,%sil; push %rbx", 3, atEntry},
	{"a sign of the second", "movslq %eax,%rsi; push %rbx", 3, atEntry},
	{"makes room first", "sub $8,%rsp; push %rbx", atEntry, atEntry},
	{"frame pointer", "mov %rsp,%rbp; push %rbx", atEntry, atEntry},
	{"half a frame pointer", "mov %esp,%ebp; push %rbx", atEntry, atEntry},
	{"other stack", "lea 64(%rsp),%rsp; push %rbx", atEntry, atEntry},
	{"clobbered", "mov %eax,%edi; push %rbx", atEntry, atEntry},
	{"zeroed", "xor %edi,%edi; push %rbx", atEntry, atEntry},
	{"half", "mov $1,%di; push %rbx", atEntry, atEntry},
	{"byte", "mov $1,%dil; push %rbx", atEntry, atEntry},
	{"exchanged", "xchg %rdi,%rax; push %rbx", atEntry, atEntry},
	{"chosen", "cmp %rax,%rdi; cmove %rax,%rdi; push %rbx", atEntry, atEntry},
	{"string", "rep stosq; push %rbx", atEntry, atEntry},
	{"calloc that multiplies", "mov %rdi,%rax; mul %rsi; jo .+50", 6, atEntry},
	{"multiplies with a sign", "mov %rdi,%rax; imul %rsi; jo .+50", 6, atEntry},
	{"multiplies into a register", "imul $24,%rdi,%rax; jo .+50", 4, 4},
	{"multiplies the argument", "imul $24,%rdi,%rdi; jo .+50", atEntry, atEntry},
	{"free of jemalloc", "mov %rdi,%rax; shr $26,%rax; and $8,%eax; jne .+40", 10, 10},
	{
		"size class", "lea 7(%rdi),%rax; shr $3,%rax; add %rax,%rcx; sub $1,%r8; neg %r9; not %r9; " +
			"or %r8,%r9; sar $2,%rax; shl $3,%rax; ja .+9", 32, 32,
	},
	{"shifts the argument", "shr $3,%rdi; ja .+40", atEntry, atEntry},
	{"adds to the third", "add $7,%edx; ja .+40", 3, atEntry},
	{"return", "ret; push %rbx", atEntry, atEntry},
	{"indirect jump", "jmp *%rax", atEntry, atEntry},
	{"jump by the counter", "jrcxz .+50; push %rbx", atEntry, atEntry},
	{"loop", "loop .+50; push %rbx", atEntry, atEntry},
	{"push of 16 bits", "push %bx", atEntry, atEntry},
	{"push of a number", "push $5", atEntry, atEntry},
	{"push of a segment", "push %fs", atEntry, atEntry},
	{"push of memory", "push (%rdi)", atEntry, atEntry},
	{"system call", "syscall; push %rbx", atEntry, atEntry},
	{"trap", "int3; push %rbx", atEntry, atEntry},
	{"no instruction", ".byte 0x06; push %rbx", atEntry, atEntry},
	{"half an instruction", ".byte 0x48,0x85", atEntry, atEntry},
	{"half a jump", ".byte 0x0f,0x84,0,0", atEntry, atEntry},
	{"landing pad alone", "endbr64", atEntry, atEntry},
	{"half a landing pad", ".byte 0xf3,0x0f,0x1e", atEntry, atEntry},
	{"nothing", "", atEntry, atEntry},
	{"nothing that is emulated", "mov %rdi,%rax; mov %rsi,%rcx", atEntry, atEntry},
}

func TestChooseSite(t *testing.T) {
	const offset = 0x28000
	for _, c := range prologues {
		code := assemble(t, c.assembly)
		for arguments, want := range map[int]int{1: c.one, 3: c.three} {
			f := Function{Name: "f", Form: bpf.CallMalloc, Arguments: arguments}
			site := chooseSite(f, elf.EM_X86_64, code, offset)
			got := int(site.Offset) - offset
			if !site.Emulated {
				if got != 0 {
					t.Errorf("%s, %d arguments: single-stepped at +%d: %s", c.name, arguments, got,
						site.Reason)
				}
				got = atEntry
			}
			if got != want || site.Reason == "" {
				t.Errorf("%s, %d arguments: +%d (%s), want +%d", c.name, arguments, got,
					site.Reason, want)
			}
		}
	}
}

func FuzzChooseSite(f *testing.F) {
	for _, c := range prologues {
		f.Add(assemble(f, c.assembly), uint8(1))
	}

	f.Fuzz(func(t *testing.T, code []byte, arguments uint8) {
		const offset = 0x28000
		function := Function{
			Name: "f", Form: bpf.CallMalloc,
			Arguments: 1 + int(arguments)%3,
		}
		site := chooseSite(function, elf.EM_X86_64, code, offset)
		at := site.Offset - offset
		if site.Reason == "" || site.Function != function {
			t.Errorf("%x: %+v", code, site)
		}
		switch {
		case !site.Emulated && at != 0:
			t.Errorf("%x: single-stepped at +%d", code, at)
		case site.Emulated && at >= uint64(len(code)):
			t.Errorf("%x: emulated at +%d, behind its end", code, at)
		case site.Emulated && !kernelEmulates(code[at:]):
			t.Errorf("%x: the kernel does not emulate what is at +%d", code, at)
		}
	})
}

// kernelEmulates reports whether the kernel emulates an instruction with these first bytes
// (arch/x86/kernel/uprobes.c).
func kernelEmulates(code []byte) bool {
	second := func(low, high byte) bool { return len(code) > 1 && code[1] >= low && code[1] <= high }
	switch c := code[0]; c {
	case 0x90, 0xe8, 0xe9, 0xeb:
		return true
	case 0x0f:
		return second(0x80, 0x8f)
	case 0x41:
		return second(0x50, 0x57)
	default:
		return c >= 0x50 && c <= 0x57 || c >= 0x70 && c <= 0x7f
	}
}

// The argument registers and those that a stack walk starts from, by objdump's names.
var (
	argumentNames = [][]string{
		{"%rdi", "%edi", "%di", "%dil"},
		{"%rsi", "%esi", "%si", "%sil"},
		{"%rdx", "%edx", "%dx", "%dl", "%dh"},
		{"%rcx", "%ecx", "%cx", "%cl", "%ch"},
	}
	frameNames = []string{"%rsp", "%esp", "%sp", "%spl", "%rbp", "%ebp", "%bp", "%bpl"}
)

// Every function of the C library has a site that is right by objdump's listing.
func TestSiteOfLibc(t *testing.T) {
	path := cLibrary(t)
	file, image := openBoth(t, path)
	listing := disassemble(t, path)
	var tried, emulated int
	for name, address := range addresses(t, path, "-D", "--defined-only") {
		first, ok := find(listing, address)
		if !ok {
			continue // not code
		}
		for arguments := 1; arguments <= len(argumentNames); arguments++ {
			f := Function{Name: name, Form: bpf.CallMalloc, Arguments: arguments}
			site := tracertest.Must(siteAt(image, f, address))(t)
			tried++
			at := address + site.Offset - fileOffset(t, file, address)
			if why := wrong(listing[first:], at, site.Emulated, arguments); why != "" {
				t.Errorf("%s at %#x, %d arguments, %s: %s", name, at, arguments, site.Reason, why)
			}
			if site.Emulated {
				emulated++
			}
		}
	}

	if tried < 4000 || emulated < tried/2 {
		t.Errorf("%d of %d sites are emulated by the kernel", emulated, tried)
	}
}

// wrong returns the fault of a site in a function with this listing, "" if there is none.
func wrong(listing []line, at uint64, emulated bool, arguments int) string {
	needed := slices.Concat(append(slices.Clone(argumentNames[:arguments]), frameNames)...)
	for _, l := range listing {
		switch {
		case l.address > at:
			return "inside an instruction"
		case l.address == at && !emulated && l.address != listing[0].address:
			return "single-stepped and not at the entry"
		case l.address == at && emulated && !isEmulated(l):
			return "the kernel does not emulate " + l.mnemonic + " " + l.operands
		case l.address == at:
			return ""
		case !isPlain(l):
			return "behind " + l.mnemonic + " " + l.operands
		case writes(l, needed):
			return "behind a write of what is needed: " + l.mnemonic + " " + l.operands
		}
	}

	return "behind the end"
}

func isEmulated(l line) bool {
	switch l.mnemonic {
	case "push":
		return strings.HasPrefix(l.operands, "%r")
	case "call", "jmp":
		return !strings.HasPrefix(l.operands, "*")
	case "nop":
		return l.operands == ""
	}

	return isConditional(l)
}

func isConditional(l line) bool {
	isOther := slices.Contains([]string{"jmp", "jrcxz", "jecxz"}, l.mnemonic)
	return strings.HasPrefix(l.mnemonic, "j") && !isOther
}

// isPlain reports whether an instruction falls through and only writes its operands.
func isPlain(l line) bool {
	if hasAnyPrefix(l.mnemonic, "movs", "cmps") { // most are string instructions
		return hasAnyPrefix(l.mnemonic, "movsl", "movsx")
	}
	return hasAnyPrefix(l.mnemonic, "mov", "lea", "xor", "test", "cmp", "nop", "endbr64", "add", "sub",
		"and", "or", "shl", "shr", "sar", "neg", "not", "mul", "imul")
}

func hasAnyPrefix(text string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(text, p) })
}

func writes(l line, registers []string) bool {
	if hasAnyPrefix(l.mnemonic, "test", "cmp", "nop") {
		return false
	}
	if hasAnyPrefix(l.mnemonic, "mul", "imul") && !strings.Contains(l.operands, ",") {
		return slices.Contains(registers, "%rdx")
	}
	last := l.operands[strings.LastIndex(l.operands, ",")+1:]
	return slices.Contains(registers, strings.TrimSpace(last))
}

// No code jumps to a site: one call would pass it twice, or other functions would.
func TestSiteIsNoJumpTarget(t *testing.T) {
	path := cLibrary(t)
	file, image := openBoth(t, path)
	exported := addresses(t, path, "-D", "--defined-only")
	sites := make(map[uint64]string)
	for _, f := range Functions {
		address, ok := exported[f.Name]
		if !ok {
			t.Fatalf("the C library has no %s", f.Name)
		}
		site := tracertest.Must(siteAt(image, f, address))(t)
		if at := address + site.Offset - fileOffset(t, file, address); at != address {
			sites[at] = f.Name
		}
	}

	for _, l := range disassemble(t, path) {
		if !strings.HasPrefix(l.mnemonic, "j") && l.mnemonic != "call" {
			continue
		}
		target, _, _ := strings.Cut(l.operands, " ")
		for at, name := range sites {
			if target == strconv.FormatUint(at, 16) {
				t.Errorf("%s %s at %#x jumps to the site of %s", l.mnemonic, l.operands, l.address,
					name)
			}
		}
	}
}
