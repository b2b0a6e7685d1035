package unwind

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
)

const program = `
int outer(int);
int leaf(int n) { return n + 1; }
int inner(int n) { volatile int big[n]; big[0] = n; return outer(big[0]) + leaf(big[n - 1]); }
int outer(int n) { volatile char frame[40000]; frame[n] = 1; return n ? inner(n - 1) : frame[0]; }
`

// The compiler's code does not depend on where its unwind information goes.
func TestDebugFrameServesWhereOnlyThatExists(t *testing.T) {
	eh := contents(t, compile(t, ".c", program, "-O2", "-fPIC"))
	debug := contents(t, compile(t, ".c", program, "-O2", "-fPIC", "-g", "-fno-asynchronous-unwind-tables"))
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
}

func TestDebugFrameAddsToEhFrame(t *testing.T) {
	both := contents(t, compile(t, ".s", ".cfi_sections .eh_frame, .debug_frame\n"+function("both", "", "nop")+function("more", "", "ret")))
	only := contents(t, compile(t, ".s", ".cfi_sections .eh_frame\n"+function("both", "", "nop")+function("more", "", "ret")))
	if !slices.Equal(buildBytes(t, both).Words, buildBytes(t, only).Words) {
		t.Error("a second description changes the table")
	}
}

func TestEachFunctionMayHaveItsKindOfInformation(t *testing.T) {
	first := function("first", "", "push %rax\n.cfi_def_cfa_offset 16\n0:\nnop\n.skip 64, 0x90")
	second := function("second", "", "sub $40, %rsp\n.cfi_def_cfa_offset 48\n0:\nnop\n.skip 64, 0x90")
	for _, kinds := range [][2]string{{".eh_frame", ".debug_frame"}, {".debug_frame", ".eh_frame"}} {
		other := write(t, "second.s", ".cfi_sections "+kinds[1]+"\n"+second)
		data := contents(t, compile(t, ".s", ".cfi_sections "+kinds[0]+"\n"+first, other))
		table, labels := buildBytes(t, data), symbols(t, data)
		if got := table.Rule(labels["first_0"].Value); got != sp(16) {
			t.Errorf("first, in %s: %s", kinds[0], describe(got))
		}
		if got := table.Rule(labels["second_0"].Value); got != sp(48) {
			t.Errorf("second, in %s: %s", kinds[1], describe(got))
		}
	}
}

func TestDebugFrameServesWhereEhFrameIsDamaged(t *testing.T) {
	data := contents(t, compile(t, ".s", ".cfi_sections .eh_frame, .debug_frame\n"+function("both", "", "nop")))
	want := buildBytes(t, data)
	damaged := data[section(t, data, ".eh_frame").Offset:]
	copy(damaged, []byte{0xf0, 0xff, 0xff, 0xff}) // a length that DWARF reserves
	if got := buildBytes(t, data); got.Base != want.Base || !slices.Equal(got.Words, want.Words) {
		t.Errorf("%d rows, %d before the damage", got.Rows, want.Rows)
	}
}

func section(t *testing.T, data []byte, name string) elf.SectionHeader {
	t.Helper()
	file, err := elf.NewFile(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if s := file.Section(name); s != nil {
		return s.SectionHeader
	}
	return elf.SectionHeader{}
}

func TestProgramHeadersSuffice(t *testing.T) {
	for _, path := range []string{"/usr/lib/x86_64-linux-gnu/libc.so.6", compile(t, ".c", program, "-O2", "-fPIC")} {
		data := contents(t, path)
		want := buildBytes(t, data)
		clear(data[40:48]) // e_shoff
		clear(data[58:64]) // e_shentsize, e_shnum, e_shstrndx
		if got := buildBytes(t, data); got.Base != want.Base || !slices.Equal(got.Words, want.Words) {
			t.Errorf("%s: %d rows without section headers, %d with them", path, got.Rows, want.Rows)
		}
	}
}

func TestTheImageOfTheVDSOHasATable(t *testing.T) {
	image := vdso(t)
	table, symbols := buildBytes(t, image), symbols(t, image)
	for _, name := range []string{"__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_getcpu"} {
		s := symbols[name]
		if got := table.Rule(s.Value); s.Size == 0 || got != sp(8) {
			t.Errorf("%s at %#x: %s", name, s.Value, describe(got))
		}
		if got := table.Rule(s.Value + s.Size - 1); got.Kind < uint8(bpf.KernelRuleKindRULE_SP) {
			t.Errorf("end of %s at %#x: %s", name, s.Value+s.Size-1, describe(got))
		}
	}
}

// vdso reads the pages that the kernel has mapped as [vdso] into this process.
func vdso(t *testing.T) []byte {
	t.Helper()
	maps := string(contents(t, "/proc/self/maps"))
	for line := range strings.Lines(maps) {
		if !strings.HasSuffix(strings.TrimSpace(line), "[vdso]") {
			continue
		}
		from, to, _ := strings.Cut(strings.Fields(line)[0], "-")
		memory, err := os.Open("/proc/self/mem")
		if err != nil {
			t.Fatal(err)
		}
		defer memory.Close()
		image := make([]byte, number(to)-number(from))
		if _, err := memory.ReadAt(image, int64(number(from))); err != nil && !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
		return image
	}
	t.Fatal("no [vdso]")
	return nil
}

func TestAFileWithoutUnwindInformationSaysSo(t *testing.T) {
	data := contents(t, compile(t, ".c", program, "-O2", "-fPIC", "-fno-asynchronous-unwind-tables"))
	_, err := Build(bytes.NewReader(data), int64(len(data)), "/lib/none.so")
	if !errors.Is(err, ErrNoInformation) || err.Error() != "read unwind information of /lib/none.so: no unwind information" {
		t.Errorf("error %v", err)
	}
}

func TestOtherFilesAreRefused(t *testing.T) {
	object := contents(t, compile(t, ".c", program, "-O2", "-fPIC"))
	changed := func(offset int, value byte) []byte {
		data := slices.Clone(object)
		data[offset] = value
		return data
	}
	for name, data := range map[string][]byte{
		"empty":                  {},
		"text":                   []byte(strings.Repeat("no ELF file ", 20)),
		"32-bit":                 changed(elf.EI_CLASS, byte(elf.ELFCLASS32)),
		"big-endian":             changed(elf.EI_DATA, byte(elf.ELFDATA2MSB)),
		"of RISC-V":              changed(18, byte(elf.EM_RISCV)),
		"without program header": changed(56, 0),
	} {
		table, err := Build(bytes.NewReader(data), int64(len(data)), "file")
		if err == nil || errors.Is(err, ErrNoInformation) {
			t.Errorf("a file that is %s: table %v, error %v", name, table, err)
		}
		if errors.Is(err, errMachine) != (name == "of RISC-V") {
			t.Errorf("a file that is %s: error %v", name, err)
		}
	}
}

// The Go compiler writes no .eh_frame and keeps frame pointers; C code beside it has its own rules.
func TestCodeOfTheGoCompilerHasFramePointers(t *testing.T) {
	data := contents(t, compile(t, ".s", function("described", "", "push %rax\n.cfi_def_cfa_offset 16\n0:\nnop")+
		".globl go\ngo: .skip 3000, 0x90\n.globl end\nend: nop\n.section .gopclntab,\"a\"\n.quad 0\n"))
	table, labels := buildBytes(t, data), symbols(t, data)
	for _, vaddr := range []uint64{labels["go"].Value + 16, labels["go"].Value + 2999} {
		if got := table.Rule(vaddr); got != kind(bpf.KernelRuleKindRULE_FRAME_POINTER) {
			t.Errorf("at %#x: %s", vaddr, describe(got))
		}
	}
	if got := table.Rule(labels["described_0"].Value); got != sp(16) {
		t.Errorf("in C code: %s", describe(got))
	}
}
