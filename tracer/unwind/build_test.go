package unwind

import (
	"fmt"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
)

// Short forms of the rules that the tests expect.
func sp(offset int32) bpf.KernelRule {
	return bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_SP), CfaOffset: offset}
}

func fp(offset int32) bpf.KernelRule {
	return bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_FP), CfaOffset: offset}
}

func kind(k bpf.KernelRuleKind) bpf.KernelRule { return bpf.KernelRule{Kind: uint8(k)} }

func with(r bpf.KernelRule, where bpf.KernelFpRule, offset int16) bpf.KernelRule {
	r.Fp, r.FpOffset = r.Fp|uint8(where), offset
	return r
}

func extra(r bpf.KernelRule, n uint8) bpf.KernelRule {
	r.Fp |= n << 4
	return r
}

// A crafted function and the rules at its labels, in order.
type crafted struct {
	name, options, body string
	want                []bpf.KernelRule
}

const (
	atCFA   = bpf.KernelFpRuleFP_AT_CFA
	atFP    = bpf.KernelFpRuleFP_AT_FP
	fpFrame = bpf.KernelFpRuleFP_FRAME
)

var craftedX86 = []crafted{
	{
		"frame", "", `
		0:
		push %rbp
		.cfi_def_cfa_offset 16
		.cfi_offset %rbp, -16
		1:
		mov %rsp, %rbp
		.cfi_def_cfa_register %rbp
		2:
		sub %rdi, %rsp
		pop %rbp
		.cfi_def_cfa %rsp, 8
		3:
		ret`,
		[]bpf.KernelRule{sp(8), with(sp(16), atCFA, -16), with(fp(16), atCFA, -16), sp(8)},
	},
	{
		"remember", "", `
		sub $24, %rsp
		.cfi_def_cfa_offset 32
		0:
		.cfi_remember_state
		nop
		.cfi_remember_state
		.cfi_def_cfa_offset 40
		1:
		nop
		.cfi_restore_state
		2:
		add $24, %rsp
		.cfi_def_cfa_offset 8
		3:
		ret
		.cfi_restore_state
		4:
		nop`,
		[]bpf.KernelRule{sp(32), sp(40), sp(32), sp(8), sp(32)},
	},
	{
		"large", "", `
		sub $70000, %rsp
		.cfi_def_cfa_offset 70008
		0:
		mov %rbp, 69992(%rsp)
		.cfi_offset %rbp, -16
		1:
		mov %rbp, (%rsp)
		.cfi_offset %rbp, -70008
		2:
		ret`,
		[]bpf.KernelRule{sp(70008), with(sp(70008), atCFA, -16), kind(bpf.KernelRuleKindRULE_UNSUPPORTED)},
	},
	{
		"realigned", "", `
		lea 8(%rsp), %r10
		.cfi_escape 0x0f, 0x03, 0x76, 0x78, 0x06
		.cfi_escape 0x10, 0x06, 0x02, 0x76, 0x00
		0:
		nop
		.cfi_escape 0x0f, 0x05, 0x77, 0x10, 0x06, 0x23, 0x08
		.cfi_same_value %rbp
		1:
		nop
		.cfi_escape 0x0f, 0x06, 0x77, 0x80, 0x01, 0x06, 0x23, 0x20
		2:
		ret`,
		[]bpf.KernelRule{
			with(bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_FP_DEREF), CfaOffset: -8}, atFP, 0),
			extra(bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_SP_DEREF), CfaOffset: 16}, 1),
			extra(bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_SP_DEREF), CfaOffset: 128}, 4),
		},
	},
	{
		"plt", "", `
		.cfi_escape 0x0f, 0x0b, 0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22
		0:
		.skip 32, 0x90`,
		[]bpf.KernelRule{kind(bpf.KernelRuleKindRULE_PLT)},
	},
	{
		"signalled", "", `
		.cfi_signal_frame
		0:
		nop`,
		[]bpf.KernelRule{kind(bpf.KernelRuleKindRULE_SIGNAL)},
	},
	{
		"sigreturn", "", `
		0:
		mov $15, %rax
		syscall`,
		[]bpf.KernelRule{kind(bpf.KernelRuleKindRULE_SIGNAL)},
	},
	{
		"start", "", `
		.cfi_undefined %rip
		0:
		call frame`,
		[]bpf.KernelRule{kind(bpf.KernelRuleKindRULE_STOP)},
	},
	{
		"register", "", `
		mov %rsp, %r11
		.cfi_def_cfa %r11, 16
		0:
		nop`,
		[]bpf.KernelRule{kind(bpf.KernelRuleKindRULE_UNSUPPORTED)},
	},
}

func TestCallFrameInformationBecomesRules(t *testing.T) {
	checkCrafted(t, 0, craftedX86)
}

func TestOnlyTheLibrariesKnownForItKeepTheFrameAddressInARegister(t *testing.T) {
	checkCrafted(t, 0, []crafted{
		{
			"register", "", `
			mov %rsp, %r11
			.cfi_def_cfa %r11, 16
			0:
			nop`,
			[]bpf.KernelRule{extra(bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_REGISTER), CfaOffset: 16}, uint8(bpf.KernelLeafRegisterLEAF_R11))},
		},
		{
			"vfork", "", `
			pop %rdi
			.cfi_def_cfa_offset 0
			.cfi_register %rip, %rdi
			0:
			syscall`,
			[]bpf.KernelRule{extra(bpf.KernelRule{Kind: uint8(bpf.KernelRuleKindRULE_RETURN_REGISTER)}, uint8(bpf.KernelLeafRegisterLEAF_RDI))},
		},
	}, "-Wl,-soname,libcrypto.so.9")
}

// The numbers of arm64 registers are valid on x86-64 too, where the assembler of this machine puts them into a file.
func TestCallFrameInformationOfArm64BecomesRules(t *testing.T) {
	checkCrafted(t, 183, []crafted{
		{
			"frame", "simple", `
			.cfi_def_cfa 31, 0
			0:
			nop
			.cfi_def_cfa_offset 32
			.cfi_offset 29, -32
			.cfi_offset 30, -24
			1:
			nop
			.cfi_def_cfa 29, 32
			2:
			nop`,
			[]bpf.KernelRule{sp(0), with(sp(32), fpFrame, -24), with(fp(32), fpFrame, -24)},
		},
		{
			"leaf", "simple", `
			.cfi_def_cfa 31, 16
			.cfi_offset 30, -16
			0:
			nop
			.cfi_undefined 30
			1:
			nop
			.cfi_restore 30
			.cfi_def_cfa 12, 0
			2:
			nop`,
			[]bpf.KernelRule{with(sp(16), atCFA, -16), kind(bpf.KernelRuleKindRULE_STOP), kind(bpf.KernelRuleKindRULE_UNSUPPORTED)},
		},
	})
}

// checkCrafted assembles functions, as a file of another machine if that is not 0, and checks the rules at their labels.
func checkCrafted(t *testing.T, machine byte, functions []crafted, flags ...string) {
	t.Helper()
	var source strings.Builder
	for _, f := range functions {
		source.WriteString(function(f.name, f.options, f.body))
	}
	data := contents(t, compile(t, ".s", source.String(), flags...))
	labels := symbols(t, data)
	if machine != 0 {
		data[18] = machine // e_machine
	}
	table := buildBytes(t, data)
	for _, f := range functions {
		for i, want := range f.want {
			label, ok := labels[fmt.Sprintf("%s_%d", f.name, i)]
			if got := table.Rule(label.Value); !ok || got != want {
				t.Errorf("%s, label %d at %#x: %s, want %s", f.name, i, label.Value, describe(got), describe(want))
			}
		}
	}
}
