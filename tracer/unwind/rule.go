package unwind

import (
	"debug/elf"
	"math"

	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/allocscope/allocscope/bpf"
)

// Rules that stand for themselves.
var (
	ruleNone         = bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_NONE)}
	ruleUnsupported  = bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_UNSUPPORTED)}
	ruleFramePointer = bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_FRAME_POINTER)}
)

// commands are the rules without parameters.
var commands = map[int32]bpf.KernelRuleKind{
	support.UnwindCommandStop:         bpf.KernelRuleKindRULE_STOP,
	support.UnwindCommandPLT:          bpf.KernelRuleKindRULE_PLT,
	support.UnwindCommandSignal:       bpf.KernelRuleKindRULE_SIGNAL,
	support.UnwindCommandFramePointer: bpf.KernelRuleKindRULE_FRAME_POINTER,
}

// leaves are the registers that only hold their value where the thread stands.
var leaves = map[uint8]bpf.KernelLeafRegister{
	support.UnwindRegX86RAX: bpf.KernelLeafRegisterLEAF_RAX,
	support.UnwindRegX86RDI: bpf.KernelLeafRegisterLEAF_RDI,
	support.UnwindRegX86R8:  bpf.KernelLeafRegisterLEAF_R8,
	support.UnwindRegX86R9:  bpf.KernelLeafRegisterLEAF_R9,
	support.UnwindRegX86R11: bpf.KernelLeafRegisterLEAF_R11,
	support.UnwindRegX86R13: bpf.KernelLeafRegisterLEAF_R13,
	support.UnwindRegX86R15: bpf.KernelLeafRegisterLEAF_R15,
}

// initialRule is what holds at the entry of a function by the ABI: the only rule of a function whose information says
// nothing further.
func initialRule(machine elf.Machine) bpf.KernelRule {
	if machine == elf.EM_AARCH64 {
		return ruleOf(machine, sdtypes.UnwindInfoLR)
	}
	return ruleOf(machine, sdtypes.UnwindInfo{BaseReg: support.UnwindRegSp, Param: 8})
}

// ruleOf gives info the form that the kernel side reads, RULE_UNSUPPORTED if it has none. The meaning of info is that of
// https://github.com/open-telemetry/opentelemetry-ebpf-profiler/blob/main/support/ebpf/native_stack_trace.h.
func ruleOf(machine elf.Machine, info sdtypes.UnwindInfo) bpf.KernelRule {
	if info.Flags&support.UnwindFlagCommand != 0 {
		return bpf.KernelRule{Kind: uint8(commandOf(info.Param))}
	}
	if machine == elf.EM_AARCH64 {
		return ruleOfARM(info)
	}
	return ruleOfX86(info)
}

func commandOf(param int32) bpf.KernelRuleKind {
	if kind, ok := commands[param]; ok {
		return kind
	}
	return bpf.KernelRuleKindRULE_UNSUPPORTED
}

func ruleOfX86(info sdtypes.UnwindInfo) bpf.KernelRule {
	if info.Flags&support.UnwindFlagRegisterRA != 0 {
		return returnRule(info)
	}
	rule := frameRule(info)
	switch info.AuxBaseReg {
	case support.UnwindRegInvalid:
		return withFP(rule, bpf.KernelFpRuleFP_SAME, 0)
	case support.UnwindRegCfa:
		return withFP(rule, bpf.KernelFpRuleFP_AT_CFA, info.AuxParam)
	case support.UnwindRegFp:
		return withFP(rule, bpf.KernelFpRuleFP_AT_FP, info.AuxParam)
	}
	return ruleUnsupported
}

// returnRule is the rule of a function that keeps its return address in a register.
func returnRule(info sdtypes.UnwindInfo) bpf.KernelRule {
	leaf, ok := leaves[info.AuxBaseReg]
	if !ok || info.BaseReg != support.UnwindRegSp || info.Flags&support.UnwindFlagDerefCfa != 0 {
		return ruleUnsupported
	}
	return bpf.KernelRule{
		Kind:      uint8(bpf.KernelRuleKindRULE_RETURN_REGISTER),
		Fp:        uint8(leaf) << 4,
		CfaOffset: info.Param,
	}
}

// frameRule is the part of a rule that finds the canonical frame address.
func frameRule(info sdtypes.UnwindInfo) bpf.KernelRule {
	plain, deref := bpf.KernelRuleKindRULE_SP, bpf.KernelRuleKindRULE_SP_DEREF
	switch info.BaseReg {
	case support.UnwindRegSp:
	case support.UnwindRegFp:
		plain, deref = bpf.KernelRuleKindRULE_FP, bpf.KernelRuleKindRULE_FP_DEREF
	default:
		leaf, ok := leaves[info.BaseReg]
		if !ok || info.Flags&support.UnwindFlagDerefCfa != 0 {
			return ruleUnsupported
		}
		return bpf.KernelRule{
			Kind: uint8(bpf.KernelRuleKindRULE_REGISTER), Fp: uint8(leaf) << 4, CfaOffset: info.Param,
		}
	}
	if info.Flags&support.UnwindFlagDerefCfa == 0 {
		return bpf.KernelRule{Kind: uint8(plain), CfaOffset: info.Param}
	}
	before, after := sdtypes.UnpackDerefParam(info.Param)
	return bpf.KernelRule{Kind: uint8(deref), Fp: uint8(after/8) << 4, CfaOffset: before}
}

func ruleOfARM(info sdtypes.UnwindInfo) bpf.KernelRule {
	if info.BaseReg != support.UnwindRegSp && info.BaseReg != support.UnwindRegFp ||
		info.Flags&(support.UnwindFlagRegisterRA|support.UnwindFlagDerefCfa) != 0 {
		return ruleUnsupported
	}
	rule := frameRule(info)
	switch info.AuxBaseReg {
	case support.UnwindRegLr:
		return withFP(rule, bpf.KernelFpRuleFP_SAME, 0)
	case support.UnwindRegCfa:
		if info.Flags&support.UnwindFlagFrame != 0 {
			return withFP(rule, bpf.KernelFpRuleFP_FRAME, info.AuxParam)
		}
		return withFP(rule, bpf.KernelFpRuleFP_AT_CFA, info.AuxParam)
	}
	return ruleUnsupported
}

// withFP adds to a rule where the caller's frame pointer is.
func withFP(rule bpf.KernelRule, fp bpf.KernelFpRule, offset int32) bpf.KernelRule {
	if rule == ruleUnsupported || offset < math.MinInt16 || offset > math.MaxInt16 {
		return ruleUnsupported
	}
	rule.Fp |= uint8(fp)
	rule.FpOffset = int16(offset)
	return rule
}
