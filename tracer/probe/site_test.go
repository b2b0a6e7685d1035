package probe

import (
	"debug/elf"
	"testing"

	"github.com/allocscope/allocscope/bpf"
)

const entry = -1 // where a case expects the entry, single-stepped

// Prologues, and at which byte they are probed for functions of one and of three arguments.
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
	{"zeroes what one argument does not need", "xor %edx,%edx; push %rbx", 2, entry},
	{"loads what one argument does not need", "lea 8(%rdi),%rsi; push %rbx", 4, entry},
	{"one byte of the third", "mov $1,%dh; push %rbx", 2, entry},
	{"one byte of the second", "mov $1,%sil; push %rbx", 3, entry},
	{"a sign of the second", "movslq %eax,%rsi; push %rbx", 3, entry},
	{"makes room first", "sub $8,%rsp; push %rbx", entry, entry},
	{"frame pointer", "mov %rsp,%rbp; push %rbx", entry, entry},
	{"half a frame pointer", "mov %esp,%ebp; push %rbx", entry, entry},
	{"other stack", "lea 64(%rsp),%rsp; push %rbx", entry, entry},
	{"clobbered", "mov %eax,%edi; push %rbx", entry, entry},
	{"zeroed", "xor %edi,%edi; push %rbx", entry, entry},
	{"half", "mov $1,%di; push %rbx", entry, entry},
	{"byte", "mov $1,%dil; push %rbx", entry, entry},
	{"exchanged", "xchg %rdi,%rax; push %rbx", entry, entry},
	{"chosen", "cmp %rax,%rdi; cmove %rax,%rdi; push %rbx", entry, entry},
	{"string", "rep stosq; push %rbx", entry, entry},
	{"calloc that multiplies", "mov %rdi,%rax; mul %rsi; jo .+50", 6, entry},
	{"multiplies with a sign", "mov %rdi,%rax; imul %rsi; jo .+50", 6, entry},
	{"multiplies into a register", "imul $24,%rdi,%rax; jo .+50", 4, 4},
	{"multiplies the argument", "imul $24,%rdi,%rdi; jo .+50", entry, entry},
	{"free of jemalloc", "mov %rdi,%rax; shr $26,%rax; and $8,%eax; jne .+40", 10, 10},
	{"size class", "lea 7(%rdi),%rax; shr $3,%rax; add %rax,%rcx; sub $1,%r8; neg %r9; not %r9; or %r8,%r9; sar $2,%rax; shl $3,%rax; ja .+9", 32, 32},
	{"shifts the argument", "shr $3,%rdi; ja .+40", entry, entry},
	{"adds to the third", "add $7,%edx; ja .+40", 3, entry},
	{"return", "ret; push %rbx", entry, entry},
	{"indirect jump", "jmp *%rax", entry, entry},
	{"jump by the counter", "jrcxz .+50; push %rbx", entry, entry},
	{"loop", "loop .+50; push %rbx", entry, entry},
	{"push of 16 bits", "push %bx", entry, entry},
	{"push of a number", "push $5", entry, entry},
	{"push of a segment", "push %fs", entry, entry},
	{"push of memory", "push (%rdi)", entry, entry},
	{"system call", "syscall; push %rbx", entry, entry},
	{"trap", "int3; push %rbx", entry, entry},
	{"no instruction", ".byte 0x06; push %rbx", entry, entry},
	{"half an instruction", ".byte 0x48,0x85", entry, entry},
	{"half a jump", ".byte 0x0f,0x84,0,0", entry, entry},
	{"landing pad alone", "endbr64", entry, entry},
	{"half a landing pad", ".byte 0xf3,0x0f,0x1e", entry, entry},
	{"nothing", "", entry, entry},
	{"nothing that is emulated", "mov %rdi,%rax; mov %rsi,%rcx", entry, entry},
}

func TestThePrologueTellsTheSite(t *testing.T) {
	const offset = 0x28000
	for _, c := range prologues {
		code := assemble(t, c.assembly)
		for arguments, want := range map[int]int{1: c.one, 3: c.three} {
			site := chooseSite(Function{Name: "f", Form: bpf.KernelCallFormCALL_MALLOC, Arguments: arguments}, elf.EM_X86_64, code, offset)
			got := int(site.Offset) - offset
			if !site.Emulated {
				if got != 0 {
					t.Errorf("%s, %d arguments: single-stepped at +%d: %s", c.name, arguments, got, site.Reason)
				}
				got = entry
			}
			if got != want || site.Reason == "" {
				t.Errorf("%s, %d arguments: +%d (%s), want +%d", c.name, arguments, got, site.Reason, want)
			}
		}
	}
}

func TestOnArm64TheEntryIsTheSite(t *testing.T) {
	code := []byte{0xfd, 0x7b, 0xbe, 0xa9, 0xfd, 0x03, 0x00, 0x91} // stp x29, x30, [sp, #-32]!; mov x29, sp
	for _, f := range Functions {
		site := chooseSite(f, elf.EM_AARCH64, code, 0x1000)
		if site.Offset != 0x1000 || site.Function != f || site.Reason == "" {
			t.Errorf("%+v", site)
		}
	}
}

func FuzzChooseSite(f *testing.F) {
	for _, c := range prologues {
		f.Add(assemble(f, c.assembly), uint8(1))
	}
	f.Fuzz(func(t *testing.T, code []byte, arguments uint8) {
		const offset = 0x28000
		function := Function{Name: "f", Form: bpf.KernelCallFormCALL_MALLOC, Arguments: 1 + int(arguments)%3}
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

// kernelEmulates is what arch/x86/kernel/uprobes.c asks of the first bytes.
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
