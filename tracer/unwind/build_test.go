package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// Short forms of the rules that the tests expect.
func sp(offset int32) bpf.Rule {
	return bpf.Rule{Kind: uint8(bpf.RuleSp), CfaOffset: offset}
}

func fp(offset int32) bpf.Rule {
	return bpf.Rule{Kind: uint8(bpf.RuleFp), CfaOffset: offset}
}

func register(r bpf.LeafRegister, offset int32) bpf.Rule {
	return extra(bpf.Rule{Kind: uint8(bpf.RuleRegister), CfaOffset: offset}, uint8(r))
}

func kind(k bpf.RuleKind) bpf.Rule { return bpf.Rule{Kind: uint8(k)} }

func with(r bpf.Rule, where bpf.FpRule, offset int16) bpf.Rule {
	r.Fp, r.FpOffset = r.Fp|uint8(where), offset
	return r
}

func extra(r bpf.Rule, n uint8) bpf.Rule {
	r.Fp |= n << 4
	return r
}

// A crafted function and the rules at its labels, in order.
type crafted struct {
	name, options, body string
	want                []bpf.Rule
}

const (
	atCFA   = bpf.FpAtCfa
	atFP    = bpf.FpAtFp
	fpFrame = bpf.FpFrame
)

var craftedX86 = []crafted{
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
		[]bpf.Rule{sp(32), sp(40), sp(32), sp(8), sp(32)},
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
		[]bpf.Rule{sp(70008), with(sp(70008), atCFA, -16), kind(bpf.RuleUnsupported)},
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
		[]bpf.Rule{
			with(bpf.Rule{Kind: uint8(bpf.RuleFpDeref), CfaOffset: -8}, atFP, 0),
			extra(bpf.Rule{Kind: uint8(bpf.RuleSpDeref), CfaOffset: 16}, 1),
			extra(bpf.Rule{Kind: uint8(bpf.RuleSpDeref), CfaOffset: 128}, 4),
		},
	},
	{
		"plt", "", `
		.cfi_escape 0x0f, 0x0b, 0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22
		0:
		.skip 32, 0x90`,
		[]bpf.Rule{kind(bpf.RulePlt)},
	},
	{
		"signalled", "", `
		.cfi_signal_frame
		0:
		nop`,
		[]bpf.Rule{kind(bpf.RuleSignal)},
	},
	{
		"sigreturn", "", `
		0:
		mov $15, %rax
		syscall`,
		[]bpf.Rule{kind(bpf.RuleSignal)},
	},
	{
		"start", "", `
		.cfi_undefined %rip
		0:
		call start`,
		[]bpf.Rule{kind(bpf.RuleStop)},
	},
	{
		"register", "", `
		mov %rsp, %r11
		.cfi_def_cfa %r11, 16
		0:
		nop`,
		[]bpf.Rule{kind(bpf.RuleUnsupported)},
	},
}

var craftedARM = []crafted{
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
		[]bpf.Rule{sp(0), with(sp(32), fpFrame, -24), with(fp(32), fpFrame, -24)},
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
		[]bpf.Rule{with(sp(16), atCFA, -16), kind(bpf.RuleStop), kind(bpf.RuleUnsupported)},
	},
}

func TestBuildRules(t *testing.T) {
	t.Run("x86-64", func(t *testing.T) { checkCrafted(t, elf.EM_X86_64, craftedX86) })
	// The numbers of arm64 registers are valid on x86-64 too, so the assembler of this machine
	// serves.
	t.Run("arm64", func(t *testing.T) { checkCrafted(t, elf.EM_AARCH64, craftedARM) })
}

// machineOffset is the offset of e_machine in an ELF header.
const machineOffset = 18

// checkCrafted assembles functions as a file of a machine, and checks the rules at their labels.
func checkCrafted(t *testing.T, machine elf.Machine, functions []crafted) {
	t.Helper()
	var source strings.Builder
	for _, f := range functions {
		source.WriteString(function(f.name, f.options, f.body))
	}

	data := contents(t, compile(t, ".s", source.String()))
	labels := symbols(t, data)
	data[machineOffset] = byte(machine)

	table := buildBytes(t, data)
	for _, f := range functions {
		for i, want := range f.want {
			label, ok := labels[fmt.Sprintf("%s_%d", f.name, i)]
			if got := table.Rule(label.Value); !ok || got != want {
				t.Errorf("%s, label %d at %#x: %s, want %s", f.name, i, label.Value, describe(got),
					describe(want))
			}
		}
	}
}

const programC = `
int outer(int);
int leaf(int n) { return n + 1; }
int inner(int n) { volatile int big[n]; big[0] = n; return outer(big[0]) + leaf(big[n - 1]); }
int outer(int n) { volatile char frame[40000]; frame[n] = 1; return n ? inner(n - 1) : frame[0]; }
`

func section(t *testing.T, data []byte, name string) elf.SectionHeader {
	t.Helper()
	file := tracertest.Must(elf.NewFile(bytes.NewReader(data)))(t)
	if s := file.Section(name); s != nil {
		return s.SectionHeader
	}

	return elf.SectionHeader{}
}

func mustEqual(t *testing.T, got, want *Table) {
	t.Helper()
	if got.Base != want.Base || !slices.Equal(got.Words, want.Words) {
		t.Errorf("%d rows from %#x, want %d from %#x", got.Rows, got.Base, want.Rows, want.Base)
	}
}

func TestBuildDebugFrame(t *testing.T) {
	// The compiler's code does not depend on where its unwind information goes.
	t.Run("instead of .eh_frame", func(t *testing.T) {
		eh := contents(t, compile(t, ".c", programC, "-O2", "-fPIC"))
		debug := contents(t,
			compile(t, ".c", programC, "-O2", "-fPIC", "-g", "-fno-asynchronous-unwind-tables"))
		if section(t, debug, ".eh_frame").Size > 0 || section(t, debug, ".debug_frame").Size == 0 {
			t.Fatal("the compiler wrote other sections than asked for")
		}

		want, got := buildBytes(t, eh), buildBytes(t, debug)
		ehSymbols, debugSymbols := symbols(t, eh), symbols(t, debug)
		for _, name := range []string{"outer", "inner", "leaf"} {
			for i := range ehSymbols[name].Size {
				a, b := want.Rule(ehSymbols[name].Value+i), got.Rule(debugSymbols[name].Value+i)
				if a != b || a == ruleNone {
					t.Errorf("%s+%d: %s, with .debug_frame %s", name, i, describe(a), describe(b))
				}
			}
		}
	})

	t.Run("beside .eh_frame", func(t *testing.T) {
		source := function("both", "", "nop") + function("more", "", "ret")
		both := contents(t, compile(t, ".s", ".cfi_sections .eh_frame, .debug_frame\n"+source))
		only := contents(t, compile(t, ".s", ".cfi_sections .eh_frame\n"+source))
		want := buildBytes(t, only)
		mustEqual(t, buildBytes(t, both), want)

		damaged := both[section(t, both, ".eh_frame").Offset:]
		copy(damaged, []byte{0xf0, 0xff, 0xff, 0xff}) // a length that DWARF reserves
		mustEqual(t, buildBytes(t, both), want)
	})

	t.Run("for other functions", func(t *testing.T) {
		first := function("first", "", "push %rax\n.cfi_def_cfa_offset 16\n0:\nnop\n.skip 64, 0x90")
		second := function("second", "",
			"sub $40, %rsp\n.cfi_def_cfa_offset 48\n0:\nnop\n.skip 64, 0x90")

		for _, kinds := range [][2]string{
			{".eh_frame", ".debug_frame"}, {".debug_frame", ".eh_frame"},
		} {
			other := write(t, "second.s", ".cfi_sections "+kinds[1]+"\n"+second)
			data := contents(t, compile(t, ".s", ".cfi_sections "+kinds[0]+"\n"+first, other))
			labels := symbols(t, data)

			checkRules(t, buildBytes(t, data), map[uint64]bpf.Rule{
				labels["first_0"].Value: sp(16), labels["second_0"].Value: sp(48),
			})
		}
	})
}

func TestBuildWithoutSections(t *testing.T) {
	for _, path := range []string{
		"/usr/lib/x86_64-linux-gnu/libc.so.6", compile(t, ".c", programC, "-O2", "-fPIC"),
	} {
		data := contents(t, path)
		want := buildBytes(t, data)
		clear(data[40:48]) // e_shoff
		clear(data[58:64]) // e_shentsize, e_shnum, e_shstrndx
		mustEqual(t, buildBytes(t, data), want)
	}
}

func TestBuildVDSO(t *testing.T) {
	image := tracertest.Must(readVDSO())(t)

	table, symbols := buildBytes(t, image), symbols(t, image)
	for _, name := range []string{"__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_getcpu"} {
		s := symbols[name]
		if got := table.Rule(s.Value); s.Size == 0 || got != sp(8) {
			t.Errorf("%s at %#x: %s", name, s.Value, describe(got))
		}

		if got := table.Rule(s.Value + s.Size - 1); got.Kind < uint8(bpf.RuleSp) {
			t.Errorf("end of %s at %#x: %s", name, s.Value+s.Size-1, describe(got))
		}
	}
}

// The dynamic loader calls constructors from code without unwind information.
func TestBuildLoader(t *testing.T) {
	const path = "/lib64/ld-linux-x86-64.so.2"
	data := contents(t, path)
	entry := binary.LittleEndian.Uint64(data[24:]) // e_entry
	for name, want := range map[string]bpf.Rule{path: ruleStop, "/lib/libother.so": ruleNone} {
		table := tracertest.Must(Build(bytes.NewReader(data), int64(len(data)), name))(t)
		if got := table.Rule(entry); got != want {
			t.Errorf("%s starts with rule %s, want %s", name, describe(got), describe(want))
		}
	}
}

// The Go compiler writes no .eh_frame and keeps frame pointers; C code beside it has its own rules.
func TestBuildGo(t *testing.T) {
	data := contents(
		t,
		compile(t, ".s", function("described", "", "push %rax\n.cfi_def_cfa_offset 16\n0:\nnop")+
			".globl go\ngo: .skip 3000, 0x90\n.globl end\nend: nop\n.section .gopclntab,\"a\"\n.quad 0\n"),
	)

	labels := symbols(t, data)
	checkRules(t, buildBytes(t, data), map[uint64]bpf.Rule{
		labels["go"].Value + 16: ruleFramePointer, labels["go"].Value + 2999: ruleFramePointer,
		labels["described_0"].Value: sp(16),
	})
}

func TestBuildRefuses(t *testing.T) {
	bare := contents(t,
		compile(t, ".c", programC, "-O2", "-fPIC", "-fno-asynchronous-unwind-tables"))
	_, err := Build(bytes.NewReader(bare), int64(len(bare)), "/lib/none.so")

	if !errors.Is(err, ErrNoInformation) ||
		err.Error() != "read unwind information of /lib/none.so: no unwind information" {
		t.Errorf("without unwind information: %v", err)
	}

	object := contents(t, compile(t, ".c", programC, "-O2", "-fPIC"))
	changed := func(offset int, value byte) []byte {
		data := slices.Clone(object)
		data[offset] = value
		return data
	}

	for name, data := range map[string][]byte{
		"empty":                   {},
		"text":                    []byte(strings.Repeat("no ELF file ", 20)),
		"32-bit":                  changed(elf.EI_CLASS, byte(elf.ELFCLASS32)),
		"big-endian":              changed(elf.EI_DATA, byte(elf.ELFDATA2MSB)),
		"RISC-V":                  changed(machineOffset, byte(elf.EM_RISCV)),
		"without program headers": changed(56, 0),
	} {
		table, err := Build(bytes.NewReader(data), int64(len(data)), "file")
		if err == nil || errors.Is(err, ErrNoInformation) ||
			errors.Is(err, errMachine) != (name == "RISC-V") {
			t.Errorf("%s: table %v, error %v", name, table, err)
		}
	}
}

// A file may have been truncated before it is opened, and may be truncated while it is read.
func TestBuildTruncated(t *testing.T) {
	small := compile(t, ".c", programC, "-O2", "-fPIC", "-g")
	for _, path := range []string{small, "/lib64/ld-linux-x86-64.so.2"} {
		data := contents(t, path)
		tables := 0
		for n := 0; n < len(data); n += 97 {
			for _, size := range []int64{int64(n), int64(len(data))} {
				if table, err := Build(bytes.NewReader(data[:n]), size, path); err == nil {
					checkTable(t, table)
					tables++
				}
			}
		}

		if tables == 0 {
			t.Errorf("%s: not even the section headers can be missing", path)
		}

		for _, size := range []int64{-1, 0, 1 << 62, 1<<63 - 1} {
			if table, err := Build(bytes.NewReader(data), size, path); err == nil {
				checkTable(t, table)
			}
		}
	}
}

// 200 common entries are more than the parser caches: each of 40,000 functions would read 4 KiB
// again.
func TestBuildLimitsReading(t *testing.T) {
	const commons, functions, entry = 200, 40_000, 4096
	var frames bytes.Buffer
	for range commons {
		common := make([]byte, entry)
		binary.LittleEndian.PutUint32(common, entry-4)
		copy(common[8:],
			"\x01zR\x00\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01") // CFA rsp+8, nops follow
		frames.Write(common)
	}

	for i := range functions {
		function := make([]byte, 20)
		binary.LittleEndian.PutUint32(function, 16)
		binary.LittleEndian.PutUint32(function[4:], uint32(frames.Len()+4-i%commons*entry))
		binary.LittleEndian.PutUint32(function[12:], 1)
		frames.Write(function)
	}

	included := write(t, "frames", frames.String())
	path := compile(t, ".s", ".nop\n.section .frames, \"a\"\n.incbin \""+included+"\"\n")
	tracertest.Run(t, "objcopy", "--rename-section", ".frames=.eh_frame", path)
	data := contents(t, path)
	if _, err := Build(bytes.NewReader(data), int64(len(data)), "file"); !errors.Is(err,
		errTooMuch) {
		t.Errorf("error %v", err)
	}
}

func TestRecoverPanics(t *testing.T) {
	err := recoverPanics(func() error { panic("index out of range") })
	if err == nil || err.Error() != "damaged file: index out of range" {
		t.Errorf("error %v", err)
	}
}

// The name of a debug file comes from the file, and the tracer is root.
func TestDebugLinkIsNotFollowed(t *testing.T) {
	path := compile(t, ".s", function("short", "", "ret"))
	tracertest.Run(t, "objcopy", "--add-gnu-debuglink="+path, path)
	data := contents(t, path)
	if section(t, data, ".gnu_debuglink").Size == 0 {
		t.Fatal("no link")
	}

	size := int64(len(data))
	img := tracertest.Must(open(newFileReader(bytes.NewReader(data), size), size))(t)

	functions, err := img.extract(img.ehFrame)
	if err != nil || len(functions) != 1 || img.file.Section(".gnu_debuglink") != nil {
		t.Errorf("%d functions, error %v; the parser has seen the link", len(functions), err)
	}

	if file, err := (noFiles{}).OpenELF("/etc/passwd"); file != nil ||
		!strings.Contains(err.Error(), "/etc/passwd") {
		t.Errorf("file %v, error %v", file, err)
	}
}

func TestSelectSections(t *testing.T) {
	header := func(name string, offset, size uint64) pfelf.Section {
		h := elf.SectionHeader{Name: name, Offset: offset, Size: size}
		return pfelf.Section{SectionHeader: h}
	}

	img := &image{file: &pfelf.File{Sections: []pfelf.Section{
		header(".eh_frame", 0, maxFrameBytes+1), header(".eh_frame", 1<<40, 1),
		header(".eh_frame", 1<<30, 1), header(".debug_frame", 8, 1<<64-8),
		header(".eh_frame_hdr", 1<<30-1, 2), header(".gnu_debuglink", 8, 8),
		header(".gopclntab", 8, 8),
		header(".eh_frame_hdr", 1<<30-1, 1), header(".eh_frame", 1, maxFrameBytes),
		header(".debug_frame", 2, 1),
	}}}

	img.selectSections(1 << 30)
	if len(img.ehFrame) != 2 || img.ehFrame[0].Size != 1 || img.ehFrame[1].Offset != 1 ||
		len(img.debug) != 1 || img.debug[0].Offset != 2 || !img.isGo {
		t.Errorf("kept %+v and %+v, Go: %v", img.ehFrame, img.debug, img.isGo)
	}
}

func TestClampSegments(t *testing.T) {
	load := func(flags elf.ProgFlag, vaddr, offset, size uint64) pfelf.Prog {
		return pfelf.Prog{ProgHeader: elf.ProgHeader{
			Type: elf.PT_LOAD, Flags: flags, Vaddr: vaddr, Off: offset, Filesz: size,
		}}
	}

	const code = elf.PF_R | elf.PF_X
	img := &image{file: &pfelf.File{Progs: []pfelf.Prog{
		load(code, 0x5000, 0x1000, 1<<63), load(code, 0x1000, 0, 0x800),
		load(elf.PF_R, 0x2000, 0, 0x800), load(code, 0x3000, 1<<63, 0x800),
		load(code, maxAddress-0x100, 0, 0x800), load(code, maxAddress, 0, 0x800),
		load(code, 1<<64-16, 0, 0x800),
	}}}
	img.clampSegments(0x1800)
	want := []span{{0x1000, 0x1800}, {0x5000, 0x5800}, {maxAddress - 0x100, maxAddress}}
	if !slices.Equal(img.code, want) {
		t.Errorf("code at %x, want %x", img.code, want)
	}
}

// FuzzBuild: whatever the file, no panic, memory bounded by its size, and look-ups stay within
// the table.
func FuzzBuild(f *testing.F) {
	var source strings.Builder
	for _, c := range craftedX86 {
		source.WriteString(function(c.name, c.options, c.body))
	}

	seeds := [][]byte{
		contents(f, compile(f, ".s", source.String(), "-s", "-Wl,-soname,libcrypto.so.9")),
		contents(f, compile(f, ".c", programC, "-O2", "-fPIC", "-s")),
		contents(f,
			compile(f, ".s", ".cfi_sections .eh_frame, .debug_frame\n"+function("both", "", "nop"))),
	}

	arm := bytes.Clone(seeds[0])
	arm[machineOffset] = byte(elf.EM_AARCH64)
	noSections := bytes.Clone(seeds[0])
	clear(noSections[40:48])

	for _, seed := range append(seeds, arm, noSections) {
		f.Add(seed)
		for _, n := range []int{
			0, 16, 63, 64, 120, 400, len(seed) / 2, len(seed) - 64, len(seed) - 1,
		} {
			f.Add(seed[:n])
		}
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		var table *Table
		var err error
		allocated := tracertest.Allocated(func() {
			table, err = Build(bytes.NewReader(data), int64(len(data)), "fuzz")
		})

		// 40 MB: headers may ask for it before they are seen to be wrong.
		if limit := uint64(40<<20 + 64*len(data)); allocated > limit {
			t.Errorf("%d bytes allocated for a file of %d bytes, more than %d", allocated,
				len(data), limit)
		}

		if err == nil {
			checkTable(t, table)
		}
	})
}
