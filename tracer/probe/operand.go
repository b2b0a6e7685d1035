package probe

import (
	"debug/elf"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/allocscope/allocscope/bpf"
)

// errOperand is the refusal of an argument that the BPF programs cannot read.
var errOperand = errors.New("not an argument that is supported (a register, a constant, " +
	"or memory at a register plus a constant)")

// maxOperands bounds the arguments that are read of a probe.
const maxOperands = 12 // STAP_PROBEV in sys/sdt.h

// Arguments of probes, such as "8@%rdi -4@%eax 8@$5 8@-16(%rbp)" on x86-64 and
// "8@x0 -4@w1 8@5 8@[sp, 16]" on arm64: the size in bytes, with a minus if the argument is signed,
// then the register, the constant, or the address.
var (
	argumentText   = regexp.MustCompile(`\S+@(?:\[[^\]]*\]|\S+)`)
	operandX86     = regexp.MustCompile(`^(-?)([1248])@(?:%(\w+)|\$(-?\w+)|(-?\w*)\(%(\w+)\))$`)
	operandAArch64 = regexp.MustCompile(
		`^(-?)([1248])@(?:([xw]\d+|sp)|#?(-?\d\w*)|\[([xw]\d+|sp)(?:, *#?(-?\w+))?\])$`)
)

// parseOperands reads the arguments of a probe.
func parseOperands(machine elf.Machine, text string) (operands []bpf.Operand, err error) {
	for _, argument := range argumentText.FindAllString(text, maxOperands) {
		operand, err := parseOperand(machine, argument)
		if err != nil {
			return nil, fmt.Errorf("read argument %q: %w", argument, err)
		}
		operands = append(operands, operand)
	}
	return operands, nil
}

func parseOperand(machine elf.Machine, text string) (o bpf.Operand, err error) {
	pattern, registers := operandX86, registersX86
	if machine == elf.EM_AARCH64 {
		pattern, registers = operandAArch64, registersAArch64
	}
	part := pattern.FindStringSubmatch(text)
	if part == nil {
		return o, errOperand
	}
	sign, size, register, constant := part[1], part[2], part[3], part[4]
	displacement, base := part[5], part[6]
	if machine == elf.EM_AARCH64 {
		displacement, base = base, displacement
	}

	if sign != "" {
		o.IsSigned = 1
	}
	o.Size = size[0] - '0'
	known := true
	switch {
	case register != "":
		o.Kind = bpf.OperandRegister
		o.Reg, known = registers[register]
	case base != "":
		o.Kind = bpf.OperandMemory
		o.Reg, known = registers[base]
		constant = displacement
	default:
		o.Kind = bpf.OperandConstant
	}

	if !known {
		return o, errOperand
	}
	if constant != "" {
		if o.Value, err = strconv.ParseInt(constant, 0, 64); err != nil {
			return o, errOperand
		}
	}
	return o, nil
}

// Offsets of the registers in struct pt_regs, in bytes, by their names.
var (
	registersX86     = make(map[string]uint16)
	registersAArch64 = make(map[string]uint16)
)

func init() {
	const word = 8                    // bytes
	for i, names := range [][]string{ // arch/x86/include/uapi/asm/ptrace.h
		{"r15", "r15d", "r15w", "r15b"},
		{"r14", "r14d", "r14w", "r14b"},
		{"r13", "r13d", "r13w", "r13b"},
		{"r12", "r12d", "r12w", "r12b"},
		{"rbp", "ebp", "bp", "bpl"},
		{"rbx", "ebx", "bx", "bl"},
		{"r11", "r11d", "r11w", "r11b"},
		{"r10", "r10d", "r10w", "r10b"},
		{"r9", "r9d", "r9w", "r9b"},
		{"r8", "r8d", "r8w", "r8b"},
		{"rax", "eax", "ax", "al"},
		{"rcx", "ecx", "cx", "cl"},
		{"rdx", "edx", "dx", "dl"},
		{"rsi", "esi", "si", "sil"},
		{"rdi", "edi", "di", "dil"},
		15 + 4: {"rsp", "esp", "sp", "spl"},
	} {
		for _, name := range names {
			registersX86[name] = uint16(word * i)
		}
	}

	for i := range 31 { // arch/arm64/include/uapi/asm/ptrace.h
		registersAArch64[fmt.Sprint("x", i)] = uint16(word * i)
		registersAArch64[fmt.Sprint("w", i)] = uint16(word * i)
	}
	registersAArch64["sp"] = word * 31
}
