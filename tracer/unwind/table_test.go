package unwind

import (
	"debug/elf"
	"errors"
	"math"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func checkRules(t *testing.T, table *Table, want map[uint64]bpf.Rule) {
	t.Helper()
	for vaddr, rule := range want {
		if got := table.Rule(vaddr); got != rule {
			t.Errorf("at %#x: %s, want %s", vaddr, describe(got), describe(rule))
		}
	}
}

// finish makes a valid table.
func finish(t *testing.T, w *writer, end uint64) *Table {
	t.Helper()
	table := tracertest.Must(w.table(end))(t)

	checkTable(t, table)
	return table
}

func TestTableLimits(t *testing.T) {
	t.Run("rules", func(t *testing.T) {
		w := newWriter(elf.EM_X86_64, 0, 0)
		for i := range uint64(70_000) {
			w.add(i, w.index(sp(int32(i))))
		}

		table := finish(t, w, 70_000)
		checkRules(t, table, map[uint64]bpf.Rule{
			0: sp(0), 65_533: sp(65_533), 65_534: ruleUnsupported, 69_999: ruleUnsupported,
		})

		if table.Rules != maxRules {
			t.Errorf("%d rules", table.Rules)
		}
	})

	t.Run("rows", func(t *testing.T) {
		w := newWriter(elf.EM_X86_64, 0, maxRows)
		for i := range uint64(maxRows + 1) {
			w.add(i, uint32(i%2))
		}

		if _, err := w.table(maxRows + 1); !errors.Is(err, errRows) {
			t.Errorf("error %v", err)
		}
	})
}

// block is a function as the parser returns it. Its rules, 8 bytes apart, are CFA = sp + each of
// offsets.
func block(start, end uint64, offsets ...int32) *sdtypes.BasicBlock {
	b := &sdtypes.BasicBlock{Start: start, End: end}
	for i, offset := range offsets {
		b.Deltas.Add(uint32(8*i), sdtypes.UnwindInfo{BaseReg: support.UnwindRegSp, Param: offset})
	}

	return b
}

// at changes the offsets of the last rules of a block.
func at(b *sdtypes.BasicBlock, offsets ...uint32) *sdtypes.BasicBlock {
	for i, offset := range offsets {
		b.Deltas[len(b.Deltas)-len(offsets)+i].Offset = offset
	}

	return b
}

func TestImageTable(t *testing.T) {
	code := []span{{0x1000, 0x9000}}
	type blocks []*sdtypes.BasicBlock
	type rules map[uint64]bpf.Rule
	for _, c := range []struct {
		name      string
		code      []span
		functions blocks
		want      rules
		rows      int // 0: not checked
	}{
		{
			name: "first of overlapping functions", code: code,
			functions: blocks{
				block(0x3000, 0x3100, 40), block(0x1000, 0x1100, 8), block(0x1000, 0x1100, 16),
				block(0x1080, 0x1200, 24), block(0x1100, 0x1180, 32),
			},
			want: rules{
				0x1000: sp(8), 0x10ff: sp(8), 0x1100: sp(32), 0x117f: sp(32), 0x1180: ruleNone,
				0x11ff: ruleNone, 0x2fff: ruleNone, 0x3000: sp(40), 0x30ff: sp(40),
				0x3100: ruleNone,
			},
		},
		{
			name: "functions outside the code",
			code: []span{{0x8000, 0x9000}, {0x1000, 0x2000}, {0x1800, 0x2800}},
			functions: blocks{
				block(0x10, 0x20, 8), block(0x1100, 0x1000, 8), block(0x1200, 0x1200, 8),
				block(0x2700, 0x8100, 16), block(0x3000, 0x3100, 8), block(0x8800, 1<<63, 24),
				block(0x8f00, 0xf, 8), block(1<<63, 1<<63+16, 8),
			},
			want: rules{
				0x10: ruleNone, 0x1100: ruleNone, 0x1200: ruleNone, 0x26ff: ruleNone,
				0x2700: sp(16), 0x27ff: sp(16), 0x2800: ruleNone, 0x3000: ruleNone,
				0x8100: ruleNone, 0x8f00: ruleNone, 1 << 63: ruleNone,
			},
		},
		{
			name:      "span beyond the limit of the file",
			code:      []span{{0x1000, 0x2000}, {1 << 40, 1<<40 + 0x1000}},
			functions: blocks{block(0x1000, 0x1100, 8), block(1<<40, 1<<40+16, 16)},
			want:      rules{0x1000: sp(8), 1 << 40: ruleNone}, rows: 2,
		},
		{
			name: "padding has the rule before", code: code,
			functions: blocks{
				block(0x1008, 0x1020, 8, 16, 24), block(0x102f, 0x1040, 32),
				block(0x1050, 0x1060, 40),
			},
			want: rules{
				0x1000: ruleNone, 0x1007: ruleNone, 0x1008: sp(8), 0x1010: sp(16), 0x101f: sp(24),
				0x1020: sp(24), 0x102e: sp(24), 0x102f: sp(32), 0x1040: ruleNone, 0x104f: ruleNone,
				0x1050: sp(40),
			},
		},
		{
			name: "neighbours with one rule share a row", code: code,
			functions: blocks{
				block(0x1000, 0x1020, 8), block(0x1020, 0x1040, 8), block(0x1048, 0x1058, 8, 16),
			},
			want: rules{0x1047: sp(8), 0x1050: sp(16), 0x1058: ruleNone}, rows: 3,
		},
		{
			name: "descending rows", code: code,
			functions: blocks{at(block(0x1000, 0x1020, 8, 16, 24), 4), block(0x1020, 0x1030, 32)},
			want:      rules{0x1000: ruleUnsupported, 0x101f: ruleUnsupported, 0x1020: sp(32)},
		},
		{
			name: "row beyond its function", code: code,
			functions: blocks{at(block(0x1000, 0x1020, 8, 16, 24), 0x20), block(0x1020, 0x1030, 32)},
			want:      rules{0x101f: sp(16), 0x1020: sp(32)},
		},
		{
			name: "last of several rows at one address", code: code,
			functions: blocks{at(block(0x1000, 0x1020, 8, 16, 24), 0, 0)},
			want:      rules{0x1000: sp(24), 0x101f: sp(24)},
		},
		{
			name: "function without rows", code: code,
			functions: blocks{block(0x1000, 0x1020)}, want: rules{0x1000: sp(8), 0x101f: sp(8)},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			img := &image{file: &pfelf.File{Machine: elf.EM_X86_64}, code: union(c.code)}
			functions := img.disjoint(c.functions)
			extent, ok := img.extent(functions, 1<<12)
			if !ok {
				t.Fatal("no function is left")
			}

			table := tracertest.Must(img.table(functions, extent))(t)

			checkTable(t, table)
			checkRules(t, table, c.want)
			if c.rows > 0 && table.Rows != c.rows {
				t.Errorf("%d rows", table.Rows)
			}
		})
	}
}

// Only the forms that TestBuild does not assemble.
func TestRuleOf(t *testing.T) {
	const (
		regCFA, regSP = support.UnwindRegCfa, support.UnwindRegSp
		regFP, regLR  = support.UnwindRegFp, support.UnwindRegLr
		regRAX        = support.UnwindRegX86RAX
		deref, frame  = support.UnwindFlagDerefCfa, support.UnwindFlagFrame
		inRegister    = support.UnwindFlagRegisterRA | support.UnwindFlagLeafOnly
	)

	type info = sdtypes.UnwindInfo
	const x86, arm = elf.EM_X86_64, elf.EM_AARCH64
	furthest, _ := sdtypes.PackDerefParam(-152, 32)
	saved := func(offset, saved int32) info {
		return info{BaseReg: regSP, Param: offset, AuxBaseReg: regCFA, AuxParam: saved}
	}

	for _, c := range []struct {
		name    string
		machine elf.Machine
		info    info
		want    bpf.Rule
	}{
		{"command", x86, info{Flags: support.UnwindFlagCommand, Param: 99}, ruleUnsupported},
		{"unknown base register", x86, info{BaseReg: 77, Param: 8}, ruleUnsupported},
		{"unknown register", x86, info{BaseReg: regSP, Param: 8, AuxBaseReg: 77}, ruleUnsupported},
		{"negative offset", x86, info{BaseReg: regFP, Param: -64}, fp(-64)},
		{"furthest", x86, saved(40000, math.MinInt16), with(sp(40000), atCFA, math.MinInt16)},
		{"too far below", x86, saved(40000, math.MinInt16-1), ruleUnsupported},
		{"too far above", x86, saved(8, math.MaxInt16+1), ruleUnsupported},
		{
			"furthest saved CFA", x86,
			info{Flags: deref, BaseReg: regSP, Param: furthest},
			extra(bpf.Rule{Kind: uint8(bpf.RuleSpDeref), CfaOffset: -152}, 4),
		},
		{"CFA saved at rax", x86, info{Flags: deref, BaseReg: regRAX}, ruleUnsupported},
		{
			"r15 and a saved frame pointer", x86,
			info{BaseReg: support.UnwindRegX86R15, Param: 64, AuxBaseReg: regCFA, AuxParam: -32},
			with(register(bpf.LeafR15, 64), atCFA, -32),
		},
		{
			"return address in rbp", x86,
			info{Flags: inRegister, BaseReg: regSP, AuxBaseReg: regFP},
			ruleUnsupported,
		},
		{
			"CFA and return address in registers", x86,
			info{Flags: inRegister, BaseReg: regFP, AuxBaseReg: support.UnwindRegX86RDI},
			ruleUnsupported,
		},
		{"leaf with locals", arm, info{BaseReg: regSP, Param: 48, AuxBaseReg: regLR}, sp(48)},
		{
			"frame too large", arm,
			info{Flags: frame, BaseReg: regSP, Param: 40000, AuxBaseReg: regCFA, AuxParam: -39992},
			ruleUnsupported,
		},
		{"no return address", arm, info{BaseReg: regSP, Param: 16}, ruleUnsupported},
		{"rax", arm, info{BaseReg: regRAX, Param: 16, AuxBaseReg: regLR}, ruleUnsupported},
		{
			"saved CFA", arm,
			info{Flags: deref, BaseReg: regSP, Param: 16, AuxBaseReg: regLR},
			ruleUnsupported,
		},
	} {
		if got := ruleOf(c.machine, c.info); got != c.want {
			t.Errorf("%s, %s: %s, want %s", c.machine, c.name, describe(got), describe(c.want))
		}
	}
}
