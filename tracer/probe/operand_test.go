package probe

import (
	"debug/elf"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
)

func TestParseOperands(t *testing.T) {
	register := func(offset uint16, size uint8) bpf.Operand {
		return bpf.Operand{Kind: bpf.OperandRegister, Reg: offset, Size: size}
	}
	constant := func(value int64, size uint8) bpf.Operand {
		return bpf.Operand{Kind: bpf.OperandConstant, Value: value, Size: size}
	}
	memory := func(offset uint16, value int64, size uint8) bpf.Operand {
		return bpf.Operand{Kind: bpf.OperandMemory, Reg: offset, Value: value, Size: size}
	}
	signed := func(o bpf.Operand) bpf.Operand { o.IsSigned = 1; return o }

	for _, c := range []struct {
		machine elf.Machine
		text    string
		want    []bpf.Operand // nil: it is refused
	}{
		{elf.EM_X86_64, "8@%rdi 8@%rsi 8@%rdx", []bpf.Operand{
			register(112, 8), register(104, 8), register(96, 8),
		}},
		{elf.EM_X86_64, "-4@%eax 8@$5 -8@$-1", []bpf.Operand{
			signed(register(80, 4)), constant(5, 8), signed(constant(-1, 8)),
		}},
		{elf.EM_X86_64, "8@-16(%rbp) 2@(%rsp) 1@%r10b 8@0x20(%r15)", []bpf.Operand{
			memory(32, -16, 8), memory(152, 0, 2), register(56, 1), memory(0, 32, 8),
		}},
		{elf.EM_AARCH64, "8@x0 -4@w1 8@5 8@#-6", []bpf.Operand{
			register(0, 8), signed(register(8, 4)), constant(5, 8), constant(-6, 8),
		}},
		{elf.EM_AARCH64, "8@[sp, 16] 4@[x29,-4] 8@x30 8@[x1]", []bpf.Operand{
			memory(248, 16, 8), memory(232, -4, 4), register(240, 8), memory(8, 0, 8),
		}},
		{elf.EM_X86_64, "", []bpf.Operand{}},
		{elf.EM_X86_64, "8@counter(%rip)", nil},
		{elf.EM_X86_64, "8@8(%rip)", nil},
		{elf.EM_X86_64, "8@(%rax,%rbx,8)", nil},
		{elf.EM_X86_64, "8@%xmm0", nil},
		{elf.EM_X86_64, "1@%ah", nil},
		{elf.EM_X86_64, "8f@%xmm0", nil},
		{elf.EM_X86_64, "3@%rdi", nil},
		{elf.EM_X86_64, "8@%rdi 16@%rsi", nil},
		{elf.EM_X86_64, "8@$99999999999999999999", nil},
		{elf.EM_X86_64, "8@x0", nil},
		{elf.EM_AARCH64, "8@%rdi", nil},
		{elf.EM_AARCH64, "8@x31", nil},
		{elf.EM_AARCH64, "8@[x1, x2]", nil},
	} {
		got, err := parseOperands(c.machine, c.text)
		if c.want == nil {
			if !errors.Is(err, errOperand) {
				t.Errorf("%s %q: %+v, %v, want a refusal", c.machine, c.text, got, err)
			}
		} else if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s %q: %+v, %v, want %+v", c.machine, c.text, got, err, c.want)
		}
	}
}

// FuzzOperands: whatever the text, an operand that is accepted is one that the BPF programs can
// read.
func FuzzOperands(f *testing.F) {
	f.Add("8@%rdi -4@16(%rsp) 8@$5")
	f.Add("8@x0 -4@[sp, 16] 8@5")
	f.Fuzz(func(t *testing.T, text string) {
		for _, machine := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
			operands, err := parseOperands(machine, text)
			if err == nil && (len(operands) > maxOperands || len(operands) > strings.Count(text, "@")) {
				t.Errorf("%q has %d operands", text, len(operands))
			}
			for _, o := range operands {
				if o.Reg > 31*8 || o.Reg%8 != 0 || !slices.Contains([]uint8{1, 2, 4, 8}, o.Size) ||
					o.Kind > bpf.OperandMemory || o.IsSigned > 1 {
					t.Errorf("%q: %+v", text, o)
				}
			}
		}
	})
}
