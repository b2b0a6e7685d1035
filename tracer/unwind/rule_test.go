package unwind

import (
	"debug/elf"
	"math"
	"testing"

	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/allocscope/allocscope/bpf"
)

type conversion struct {
	name string
	info sdtypes.UnwindInfo
	want bpf.KernelRule
}

// Short forms of the parser's names.
const (
	regCFA = support.UnwindRegCfa
	regSP  = support.UnwindRegSp
	regFP  = support.UnwindRegFp
	regLR  = support.UnwindRegLr
	deref  = support.UnwindFlagDerefCfa
	inReg  = support.UnwindFlagRegisterRA | support.UnwindFlagLeafOnly
	leaf   = support.UnwindFlagLeafOnly
	frame  = support.UnwindFlagFrame
)

func packed(before, after int32) int32 {
	param, ok := sdtypes.PackDerefParam(before, after)
	if !ok {
		panic("cannot be packed")
	}
	return param
}

func register(r bpf.KernelLeafRegister, offset int32) bpf.KernelRule {
	return extra(bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_REGISTER), CfaOffset: offset}, uint8(r))
}

func returnIn(r bpf.KernelLeafRegister, offset int32) bpf.KernelRule {
	return extra(bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_RETURN_REGISTER), CfaOffset: offset}, uint8(r))
}

func derefRule(k bpf.KernelRuleKind, before int32, words uint8) bpf.KernelRule {
	return extra(bpf.KernelRule{Kind: uint8(k), CfaOffset: before}, words)
}

var (
	unsupported = kind(bpf.KernelRuleKindRULE_UNSUPPORTED)

	everywhere = []conversion{
		{"code without valid information", sdtypes.UnwindInfoInvalid, unsupported},
		{"the start of a thread", sdtypes.UnwindInfoStop, kind(bpf.KernelRuleKindRULE_STOP)},
		{"a signal frame", sdtypes.UnwindInfoSignal, kind(bpf.KernelRuleKindRULE_SIGNAL)},
		{"code of the Go compiler", sdtypes.UnwindInfoFramePointer, kind(bpf.KernelRuleKindRULE_FRAME_POINTER)},
		{"a PLT entry", sdtypes.UnwindInfo{Flags: support.UnwindFlagCommand, Param: support.UnwindCommandPLT}, kind(bpf.KernelRuleKindRULE_PLT)},
		{"an unknown command", sdtypes.UnwindInfo{Flags: support.UnwindFlagCommand, Param: 99}, unsupported},
		{"no base register", sdtypes.UnwindInfo{Param: 8}, unsupported},
		{"an unknown base register", sdtypes.UnwindInfo{BaseReg: 77, Param: 8}, unsupported},
		{"an unknown second register", sdtypes.UnwindInfo{BaseReg: regSP, Param: 8, AuxBaseReg: 77}, unsupported},
	}
	onX86 = append([]conversion{
		{"the stack pointer", sdtypes.UnwindInfo{BaseReg: regSP, Param: 8}, sp(8)},
		{"a saved frame pointer", sdtypes.UnwindInfo{BaseReg: regSP, Param: 24, AuxBaseReg: regCFA, AuxParam: -16}, with(sp(24), atCFA, -16)},
		{"a frame pointer", sdtypes.UnwindInfo{BaseReg: regFP, Param: 16, AuxBaseReg: regCFA, AuxParam: -16}, with(fp(16), atCFA, -16)},
		{"a huge frame", sdtypes.UnwindInfo{BaseReg: regSP, Param: 1 << 30}, sp(1 << 30)},
		{"a negative offset", sdtypes.UnwindInfo{BaseReg: regFP, Param: -64}, fp(-64)},
		{"the furthest frame pointer", sdtypes.UnwindInfo{BaseReg: regSP, Param: 40000, AuxBaseReg: regCFA, AuxParam: math.MinInt16}, with(sp(40000), atCFA, math.MinInt16)},
		{"a frame pointer too far", sdtypes.UnwindInfo{BaseReg: regSP, Param: 40000, AuxBaseReg: regCFA, AuxParam: math.MinInt16 - 1}, unsupported},
		{"a frame pointer too far above", sdtypes.UnwindInfo{BaseReg: regSP, Param: 8, AuxBaseReg: regCFA, AuxParam: math.MaxInt16 + 1}, unsupported},
		{
			"a realigned stack",
			sdtypes.UnwindInfo{Flags: deref, BaseReg: regFP, Param: packed(-8, 0), AuxBaseReg: regFP},
			with(derefRule(bpf.KernelRuleKindRULE_FP_DEREF, -8, 0), atFP, 0),
		},
		{"a saved stack pointer", sdtypes.UnwindInfo{Flags: deref, BaseReg: regSP, Param: packed(152, 8)}, derefRule(bpf.KernelRuleKindRULE_SP_DEREF, 152, 1)},
		{"the furthest of them", sdtypes.UnwindInfo{Flags: deref, BaseReg: regSP, Param: packed(-152, 32)}, derefRule(bpf.KernelRuleKindRULE_SP_DEREF, -152, 4)},
		{"a pointer in another register", sdtypes.UnwindInfo{Flags: deref | leaf, BaseReg: support.UnwindRegX86RAX}, unsupported},
		{"rax", sdtypes.UnwindInfo{Flags: leaf, BaseReg: support.UnwindRegX86RAX, Param: 8}, register(bpf.KernelLeafRegisterLEAF_RAX, 8)},
		{"rdi", sdtypes.UnwindInfo{Flags: leaf, BaseReg: support.UnwindRegX86RDI, Param: 8}, register(bpf.KernelLeafRegisterLEAF_RDI, 8)},
		{"r8", sdtypes.UnwindInfo{Flags: leaf, BaseReg: support.UnwindRegX86R8, Param: 8}, register(bpf.KernelLeafRegisterLEAF_R8, 8)},
		{"r9", sdtypes.UnwindInfo{Flags: leaf, BaseReg: support.UnwindRegX86R9, Param: 8}, register(bpf.KernelLeafRegisterLEAF_R9, 8)},
		{"r11", sdtypes.UnwindInfo{Flags: leaf, BaseReg: support.UnwindRegX86R11, Param: -8}, register(bpf.KernelLeafRegisterLEAF_R11, -8)},
		{"r13", sdtypes.UnwindInfo{Flags: leaf, BaseReg: support.UnwindRegX86R13, Param: 8}, register(bpf.KernelLeafRegisterLEAF_R13, 8)},
		{
			"r15 and a saved frame pointer",
			sdtypes.UnwindInfo{Flags: leaf, BaseReg: support.UnwindRegX86R15, Param: 64, AuxBaseReg: regCFA, AuxParam: -32},
			with(register(bpf.KernelLeafRegisterLEAF_R15, 64), atCFA, -32),
		},
		{"vfork", sdtypes.UnwindInfo{Flags: inReg, BaseReg: regSP, AuxBaseReg: support.UnwindRegX86RDI}, returnIn(bpf.KernelLeafRegisterLEAF_RDI, 0)},
		{"vfork after its push", sdtypes.UnwindInfo{Flags: inReg, BaseReg: regSP, Param: 8, AuxBaseReg: support.UnwindRegX86RDI}, returnIn(bpf.KernelLeafRegisterLEAF_RDI, 8)},
		{"a return address in the frame pointer", sdtypes.UnwindInfo{Flags: inReg, BaseReg: regSP, AuxBaseReg: regFP}, unsupported},
		{"two registers", sdtypes.UnwindInfo{Flags: inReg, BaseReg: regFP, AuxBaseReg: support.UnwindRegX86RDI}, unsupported},
	}, everywhere...)
	onARM = append([]conversion{
		{"a leaf", sdtypes.UnwindInfoLR, sp(0)},
		{"a leaf with locals", sdtypes.UnwindInfo{BaseReg: regSP, Param: 48, AuxBaseReg: regLR}, sp(48)},
		{"a full frame", sdtypes.UnwindInfo{Flags: frame, BaseReg: regSP, Param: 32, AuxBaseReg: regCFA, AuxParam: -24}, with(sp(32), fpFrame, -24)},
		{"a full frame by its pointer", sdtypes.UnwindInfo{Flags: frame, BaseReg: regFP, Param: 32, AuxBaseReg: regCFA, AuxParam: -24}, with(fp(32), fpFrame, -24)},
		{"a saved return address alone", sdtypes.UnwindInfo{BaseReg: regSP, Param: 16, AuxBaseReg: regCFA, AuxParam: -16}, with(sp(16), atCFA, -16)},
		{"a frame too large", sdtypes.UnwindInfo{Flags: frame, BaseReg: regSP, Param: 40000, AuxBaseReg: regCFA, AuxParam: -39992}, unsupported},
		{"no return address", sdtypes.UnwindInfo{BaseReg: regSP, Param: 16}, unsupported},
		{"a register of x86-64", sdtypes.UnwindInfo{BaseReg: support.UnwindRegX86RAX, Param: 16, AuxBaseReg: regLR}, unsupported},
		{"a pointer", sdtypes.UnwindInfo{Flags: deref, BaseReg: regSP, Param: 16, AuxBaseReg: regLR}, unsupported},
	}, everywhere...)
)

func TestEachFormBecomesItsRule(t *testing.T) {
	for machine, conversions := range map[elf.Machine][]conversion{elf.EM_X86_64: onX86, elf.EM_AARCH64: onARM} {
		for _, c := range conversions {
			if got := ruleOf(machine, c.info); got != c.want {
				t.Errorf("%s, %s: %s, want %s", machine, c.name, describe(got), describe(c.want))
			}
		}
	}
}

func TestAFunctionWithoutFurtherInformationIsAsCalled(t *testing.T) {
	if got := initialRule(elf.EM_X86_64); got != sp(8) {
		t.Error(describe(got))
	}
	if got := initialRule(elf.EM_AARCH64); got != sp(0) {
		t.Error(describe(got))
	}
}
