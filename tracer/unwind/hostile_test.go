package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/ebpf-profiler/libpf/pfelf"
	sdtypes "go.opentelemetry.io/ebpf-profiler/nativeunwind/stackdeltatypes"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/allocscope/allocscope/bpf"
)

// A file may have been cut before it is opened, and may be cut while it is read.
func TestTruncatedFilesAreRead(t *testing.T) {
	small := compile(t, ".c", program, "-O2", "-fPIC", "-g")
	for _, path := range []string{small, "/lib64/ld-linux-x86-64.so.2"} {
		data := contents(t, path)
		tables := 0
		for n := 0; n < len(data); n += 97 {
			for _, size := range []int{n, len(data)} {
				table, err := Build(bytes.NewReader(data[:n]), int64(size), path)
				if err == nil {
					checkTable(t, table)
					tables++
				}
			}
		}
		if tables == 0 {
			t.Errorf("%s: not even the section headers can be missing", path)
		}
	}
}

func TestSizesThatCannotBeAreRead(t *testing.T) {
	data := contents(t, compile(t, ".c", program, "-O2", "-fPIC"))
	for _, size := range []int64{-1, 0, 1 << 62, 1<<63 - 1} {
		if table, err := Build(bytes.NewReader(data), size, "file"); err == nil {
			checkTable(t, table)
		}
	}
}

// 200 common entries are more than the parser remembers: each of 40,000 functions would have it read 4 KiB again.
func TestReadingIsLimited(t *testing.T) {
	const commons, functions, entry = 200, 40_000, 4096
	var frames bytes.Buffer
	for range commons {
		common := make([]byte, entry)
		binary.LittleEndian.PutUint32(common, entry-4)
		copy(common[8:], "\x01zR\x00\x01\x78\x10\x01\x1b\x0c\x07\x08\x90\x01") // the CFA is rsp+8; no-operations follow
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
	if message, err := exec.Command("objcopy", "--rename-section", ".frames=.eh_frame", path).CombinedOutput(); err != nil {
		t.Fatalf("objcopy: %v\n%s", err, message)
	}
	data := contents(t, path)
	if _, err := Build(bytes.NewReader(data), int64(len(data)), "file"); !errors.Is(err, errTooMuch) {
		t.Errorf("error %v", err)
	}
}

func TestPanicsOfTheParserAreErrors(t *testing.T) {
	if err := guarded(func() error { panic("index out of range") }); err == nil || err.Error() != "damaged file: index out of range" {
		t.Errorf("error %v", err)
	}
	if err := guarded(func() error { panic(errTooMuch) }); !errors.Is(err, errTooMuch) {
		t.Errorf("error %v", err)
	}
	if err := guarded(func() error { return os.ErrClosed }); !errors.Is(err, os.ErrClosed) {
		t.Errorf("error %v", err)
	}
}

// The name of a debug file comes from the file, and the tracer is root.
func TestDebugFilesAreNotOpened(t *testing.T) {
	path := compile(t, ".s", function("short", "", "ret"))
	if message, err := exec.Command("objcopy", "--add-gnu-debuglink="+path, path).CombinedOutput(); err != nil {
		t.Fatalf("objcopy: %v\n%s", err, message)
	}
	data := contents(t, path)
	if section(t, data, ".gnu_debuglink").Size == 0 {
		t.Fatal("no link")
	}
	img, err := open(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	functions, err := img.extract(img.ehFrame)
	if err != nil || len(functions) != 1 || img.file.Section(".gnu_debuglink") != nil {
		t.Errorf("%d functions, error %v; the parser has seen the link", len(functions), err)
	}
	if file, err := (noFiles{}).OpenELF("/etc/passwd"); file != nil || !strings.Contains(err.Error(), "/etc/passwd") {
		t.Errorf("file %v, error %v", file, err)
	}
}

// block is a function as the parser returns it: its rules, 8 bytes apart, are CFA = sp + each of offsets.
func block(start, end uint64, offsets ...int32) *sdtypes.BasicBlock {
	b := &sdtypes.BasicBlock{Start: start, End: end}
	for i, offset := range offsets {
		b.Deltas.Add(uint32(8*i), sdtypes.UnwindInfo{BaseReg: support.UnwindRegSp, Param: offset})
	}
	return b
}

// rulesOf puts functions into a table of an x86-64 file with code at the spans and of size bytes.
func rulesOf(t *testing.T, size int64, code []span, functions ...*sdtypes.BasicBlock) *Table {
	t.Helper()
	img := &image{file: &pfelf.File{Machine: elf.EM_X86_64}, code: union(code)}
	functions = img.sound(functions)
	extent, ok := img.extent(functions, size)
	if !ok {
		t.Fatal("nothing is left")
	}
	table, err := img.table(functions, extent)
	if err != nil {
		t.Fatal(err)
	}
	checkTable(t, table)
	return table
}

func checkRules(t *testing.T, table *Table, want map[uint64]bpf.KernelRule) {
	t.Helper()
	for vaddr, rule := range want {
		if got := table.Rule(vaddr); got != rule {
			t.Errorf("at %#x: %s, want %s", vaddr, describe(got), describe(rule))
		}
	}
}

func TestTheFirstOfOverlappingFunctionsWins(t *testing.T) {
	table := rulesOf(t, 1<<20, []span{{0x1000, 0x9000}},
		block(0x3000, 0x3100, 40), block(0x1000, 0x1100, 8), block(0x1000, 0x1100, 16), block(0x1080, 0x1200, 24), block(0x1100, 0x1180, 32))
	checkRules(t, table, map[uint64]bpf.KernelRule{
		0x1000: sp(8), 0x10ff: sp(8), 0x1100: sp(32), 0x117f: sp(32), 0x1180: ruleNone, 0x11ff: ruleNone,
		0x2fff: ruleNone, 0x3000: sp(40), 0x30ff: sp(40), 0x3100: ruleNone,
	})
}

func TestFunctionsOutsideTheCodeAreDropped(t *testing.T) {
	table := rulesOf(t, 1<<20, []span{{0x8000, 0x9000}, {0x1000, 0x2000}, {0x1800, 0x2800}},
		block(0x10, 0x20, 8), block(0x1100, 0x1000, 8), block(0x1200, 0x1200, 8), block(0x2700, 0x8100, 16),
		block(0x3000, 0x3100, 8), block(0x8800, 1<<63, 24), block(0x8f00, 0xf, 8), block(1<<63, 1<<63+16, 8))
	checkRules(t, table, map[uint64]bpf.KernelRule{
		0x10: ruleNone, 0x1100: ruleNone, 0x1200: ruleNone, 0x26ff: ruleNone, 0x2700: sp(16), 0x27ff: sp(16),
		0x2800: ruleNone, 0x3000: ruleNone, 0x8100: ruleNone, 0x8f00: ruleNone, 1 << 63: ruleNone,
	})
}

func TestOnlySoundSectionsOfUseAreShownToTheParser(t *testing.T) {
	header := func(name string, offset, size uint64) pfelf.Section {
		return pfelf.Section{SectionHeader: elf.SectionHeader{Name: name, Offset: offset, Size: size}}
	}
	img := &image{file: &pfelf.File{Sections: []pfelf.Section{
		header(".eh_frame", 0, maxFrames+1), header(".eh_frame", 1<<40, 1), header(".eh_frame", 1<<30, 1), header(".debug_frame", 8, 1<<64-8),
		header(".eh_frame_hdr", 1<<30-1, 2), header(".gnu_debuglink", 8, 8), header(".gopclntab", 8, 8),
		header(".eh_frame_hdr", 1<<30-1, 1), header(".eh_frame", 1, maxFrames), header(".debug_frame", 2, 1),
	}}}
	img.sort(1 << 30)
	if len(img.ehFrame) != 2 || img.ehFrame[0].Size != 1 || img.ehFrame[1].Offset != 1 || len(img.debug) != 1 || img.debug[0].Offset != 2 || !img.isGo {
		t.Errorf("kept %+v and %+v, Go: %v", img.ehFrame, img.debug, img.isGo)
	}
}

func TestSegmentsAreClampedToWhatTheFileHolds(t *testing.T) {
	load := func(flags elf.ProgFlag, vaddr, offset, size uint64) pfelf.Prog {
		return pfelf.Prog{ProgHeader: elf.ProgHeader{Type: elf.PT_LOAD, Flags: flags, Vaddr: vaddr, Off: offset, Filesz: size}}
	}
	const code = elf.PF_R | elf.PF_X
	img := &image{file: &pfelf.File{Progs: []pfelf.Prog{
		load(code, 0x5000, 0x1000, 1<<63), load(code, 0x1000, 0, 0x800), load(elf.PF_R, 0x2000, 0, 0x800), load(code, 0x3000, 1<<63, 0x800),
		load(code, maxAddress-0x100, 0, 0x800), load(code, maxAddress, 0, 0x800), load(code, 1<<64-16, 0, 0x800),
	}}}
	img.clamp(0x1800)
	want := []span{{0x1000, 0x1800}, {0x5000, 0x5800}, {maxAddress - 0x100, maxAddress}}
	if !slices.Equal(img.code, want) {
		t.Errorf("code at %x, want %x", img.code, want)
	}
}

func TestTheSpanOfATableIsDueToItsFile(t *testing.T) {
	code := []span{{0x1000, 0x2000}, {1 << 40, 1<<40 + 0x1000}}
	table := rulesOf(t, 1<<12, code, block(0x1000, 0x1100, 8), block(1<<40, 1<<40+16, 16))
	checkRules(t, table, map[uint64]bpf.KernelRule{0x1000: sp(8), 1 << 40: ruleNone})
	if bytes := 8 * len(table.Words); bytes > 1<<10 {
		t.Errorf("%d bytes", bytes)
	}
}

func TestPaddingHasTheRuleBefore(t *testing.T) {
	table := rulesOf(t, 1<<20, []span{{0x1000, 0x9000}}, block(0x1008, 0x1020, 8, 16, 24), block(0x102f, 0x1040, 32), block(0x1050, 0x1060, 40))
	checkRules(t, table, map[uint64]bpf.KernelRule{
		0x1000: ruleNone, 0x1007: ruleNone, 0x1008: sp(8), 0x1010: sp(16), 0x101f: sp(24),
		0x1020: sp(24), 0x102e: sp(24), 0x102f: sp(32), 0x1040: ruleNone, 0x104f: ruleNone, 0x1050: sp(40),
	})
}

func TestNeighboursWithOneRuleShareARow(t *testing.T) {
	table := rulesOf(t, 1<<20, []span{{0x1000, 0x9000}}, block(0x1000, 0x1020, 8), block(0x1020, 0x1040, 8), block(0x1048, 0x1058, 8, 16))
	if table.Rows != 3 { // 8, 16, and none after the end
		t.Errorf("%d rows", table.Rows)
	}
}

func TestRowsThatGoBackAreUnsupported(t *testing.T) {
	back := block(0x1000, 0x1020, 8, 16, 24)
	back.Deltas[2].Offset = 4
	table := rulesOf(t, 1<<20, []span{{0x1000, 0x9000}}, back, block(0x1020, 0x1030, 32))
	checkRules(t, table, map[uint64]bpf.KernelRule{0x1000: ruleUnsupported, 0x101f: ruleUnsupported, 0x1020: sp(32)})
}

func TestRowsBeyondTheirFunctionAreDropped(t *testing.T) {
	beyond := block(0x1000, 0x1020, 8, 16, 24)
	beyond.Deltas[2].Offset = 0x20
	table := rulesOf(t, 1<<20, []span{{0x1000, 0x9000}}, beyond, block(0x1020, 0x1030, 32))
	checkRules(t, table, map[uint64]bpf.KernelRule{0x101f: sp(16), 0x1020: sp(32)})
}

func TestTheLastOfSeveralRowsAtOneAddressHolds(t *testing.T) {
	same := block(0x1000, 0x1020, 8, 16, 24)
	same.Deltas[1].Offset, same.Deltas[2].Offset = 0, 0
	checkRules(t, rulesOf(t, 1<<20, []span{{0x1000, 0x9000}}, same), map[uint64]bpf.KernelRule{0x1000: sp(24), 0x101f: sp(24)})
}

func TestAFunctionWithoutRowsIsAsCalled(t *testing.T) {
	checkRules(t, rulesOf(t, 1<<20, []span{{0x1000, 0x9000}}, block(0x1000, 0x1020)), map[uint64]bpf.KernelRule{0x1000: sp(8), 0x101f: sp(8)})
}
