package python

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// loopOf is findLoop on a file, without what is unused.
func loopOf(t testing.TB, path string, bias uint64) ([]bpf.KernelCodeRange, error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	file, err := symbol.Open(f, path)
	if err != nil {
		t.Fatal(err)
	}
	ranges, err := findLoop(file, bias)
	used := slices.IndexFunc(ranges[:], func(r bpf.KernelCodeRange) bool { return r.Start == 0 })
	if used < 0 {
		used = len(ranges)
	}
	return ranges[:used], err
}

// namedLoop is what nm says of the loop: the function first.
func namedLoop(t testing.TB, path string, bias uint64) (ranges []bpf.KernelCodeRange) {
	t.Helper()
	for line := range strings.Lines(runTool(t, "nm", "-S", "--defined-only", path)) {
		f := strings.Fields(line) // address, size, kind, name
		if len(f) != 4 || f[3] != loopFunction && !strings.HasPrefix(f[3], loopFunction+".cold") {
			continue
		}
		start, err := strconv.ParseUint(f[0], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		size, err := strconv.ParseUint(f[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		r := bpf.KernelCodeRange{Start: start + bias, End: start + size + bias}
		if f[3] == loopFunction {
			ranges = slices.Insert(ranges, 0, r)
		} else {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// stripped is a copy of a file without .symtab.
func stripped(t testing.TB, path string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), filepath.Base(path))
	runTool(t, "strip", "-o", out, path)
	return out
}

func mustHaveLoop(t *testing.T, path string, want []bpf.KernelCodeRange) {
	t.Helper()
	if got, err := loopOf(t, path, bias); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: loop %+v, %v, want %+v", path, got, err, want)
	}
}

const bias = 0x7f0000000000

func TestTheLoopOfInterpretersIsFoundWithAndWithoutSymbols(t *testing.T) {
	known := 0
	for name, command := range interpreterCommands(t) {
		path, _ := library(t, command)
		if path == "" {
			continue
		}
		named := namedLoop(t, path, bias)
		if len(named) == 0 {
			continue // stripped
		}
		known++
		t.Run(name, func(t *testing.T) {
			mustHaveLoop(t, path, named)
			// What is shorter than a call and a jump is where the compiler ends up after what cannot happen.
			reachable := slices.DeleteFunc(named, func(r bpf.KernelCodeRange) bool { return r.End-r.Start < 10 })
			mustHaveLoop(t, stripped(t, path), reachable)
		})
	}
	if known == 0 {
		t.Fatal("no interpreter has symbols (pyenv's have)")
	}
}

// Debian's programs have none; their loops have a piece elsewhere, from 3.9 on.
func TestTheLoopOfDebiansInterpretersHasAPieceElsewhere(t *testing.T) {
	for name, command := range interpreterCommands(t) {
		path := "/usr/bin/python3"
		switch {
		case strings.HasPrefix(name, "debian-"):
			link, err := os.Readlink(filepath.Join(command[1], path)) // of a folder that is the program's root
			if err != nil {
				t.Fatal(err)
			}
			path = filepath.Join(command[1], "/usr/bin", link)
		case name != "system":
			continue
		}
		t.Run(name, func(t *testing.T) {
			loop, err := loopOf(t, path, 0)
			if err != nil || len(loop) != 2 || loop[1].End-loop[1].Start < 4096 {
				t.Errorf("loop %+v, %v", loop, err)
			}
		})
	}
}

// loopC has an end that the compiler moves away, and a jump to another function.
const loopC = `
extern int printf(const char *, ...);
extern int sprintf(char *, const char *, ...);
extern void abort(void);
__attribute__((noinline)) int elsewhere(int n) { return printf("%d", n); }
int _PyEval_EvalFrameDefault(int n, char **words) {
	int sum = 0;
	char text[100];
	for (int i = 0; i < n; i++) sum += words[i][0] + sprintf(text, "%s", words[i]);
	if (sum == 7) abort();
	return elsewhere(sum + text[n]);
}
`

func TestTheLoopIsFoundHoweverItIsCompiled(t *testing.T) {
	for _, flags := range []string{
		"-O2", "-O3", "-O2 -fcf-protection=full", "-O2 -fno-omit-frame-pointer", "-O2 -fno-plt", "-O2 -Wl,-z,lazy -fcf-protection=none",
	} {
		t.Run(flags, func(t *testing.T) {
			path := buildC(t, loopC, append(strings.Fields(flags), "-shared", "-fPIC")...)
			named := namedLoop(t, path, bias)
			if len(named) != 2 {
				t.Fatalf("nm says %+v", named)
			}
			mustHaveLoop(t, path, named)
			mustHaveLoop(t, stripped(t, path), named)
		})
	}
}

// chainOfPieces is assembly of a loop in that many pieces, each of which jumps to the next and back, and the last to
// another function.
func chainOfPieces(count int) string {
	text := ".globl _PyEval_EvalFrameDefault\n.type _PyEval_EvalFrameDefault,@function\n"
	for i := range count {
		name, rule := fmt.Sprintf("piece%d", i), ".cfi_def_cfa_offset 80\n"
		if i == 0 {
			name, rule = loopFunction, "endbr64\npush %rbx\n.cfi_def_cfa_offset 16\nsub $64,%rsp\n.cfi_def_cfa_offset 80\n"
		}
		next := fmt.Sprintf("piece%d", i+1)
		if i == count-1 {
			next = "other"
		}
		// The bytes after the jump are no instruction.
		text += fmt.Sprintf(".p2align 4\n%s: .cfi_startproc\n%stest %%rdi,%%rdi\njne %s\njmp back\n.byte 0x06,0x0e,0x27\n.cfi_endproc\n", name, rule, next)
		if i == 0 {
			text += "back: ret\n.size _PyEval_EvalFrameDefault,.-_PyEval_EvalFrameDefault\n"
		}
	}
	return text + ".p2align 4\nother: .cfi_startproc\nret\n.cfi_endproc\n"
}

func assemble(t testing.TB, source string) string {
	t.Helper()
	input := filepath.Join(t.TempDir(), "source.s")
	if err := os.WriteFile(input, []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	output := strings.TrimSuffix(input, ".s") + ".so"
	runTool(t, "gcc", "-nostdlib", "-shared", "-o", output, input)
	return output
}

func TestPiecesAreFollowedFromOneToTheNext(t *testing.T) {
	for count := 1; count <= maxPieces+2; count++ {
		t.Run(strconv.Itoa(count)+" of them", func(t *testing.T) {
			loop, err := loopOf(t, assemble(t, chainOfPieces(count)), 0)
			switch {
			case count > maxPieces:
				if !errors.Is(err, ErrUnsupported) {
					t.Errorf("%+v, %v", loop, err)
				}
			case err != nil || len(loop) != count:
				t.Errorf("%d pieces, %v: %+v", len(loop), err, loop)
			}
		})
	}
}

func TestALoopWithoutUnwindInformationIsTheFunctionAlone(t *testing.T) {
	path := buildC(t, loopC, "-shared", "-fPIC", "-fno-asynchronous-unwind-tables", "-nostartfiles", "-Wl,--no-eh-frame-hdr")
	mustHaveLoop(t, stripped(t, path), namedLoop(t, path, bias)[:1])
}

// Whatever the code: what it jumps to is outside of it.
func FuzzJumpTargets(f *testing.F) {
	f.Add([]byte{0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x84, 0x00, 0x10, 0x00, 0x00, 0xeb, 0xfe, 0xe9, 0xff, 0xff, 0xff, 0x7f})
	f.Add([]byte{0x06, 0x0e, 0xe8, 0, 0, 0, 0, 0xe3, 0x80, 0xff, 0xe0, 0x70})
	f.Fuzz(func(t *testing.T, code []byte) {
		const start = 1 << 20
		for target := range jumpTargets(code, start) {
			if target >= start && target < start+uint64(len(code)) {
				t.Errorf("%#x is inside", target)
			}
		}
	})
}

func TestJumpsThatLeaveAreFound(t *testing.T) {
	code := []byte{
		0xf3, 0x0f, 0x1e, 0xfa, // endbr64
		0x0f, 0x84, 0x00, 0x10, 0x00, 0x00, // je +0x1000
		0xe8, 0x00, 0x20, 0x00, 0x00, // call +0x2000
		0xeb, 0xfe, // jmp to itself
		0x48, 0xb8, 0xe9, 0, 0, 0, 0x40, 0, 0, 0, // mov $0x40000000e9,%rax: no jump in it
		0xe9, 0x00, 0xf0, 0xff, 0xff, // jmp -0x1000
		0x74, 0x7f, // je +0x7f
		0xff, 0xe0, // jmp *%rax
	}
	got := jumpTargets(code, 0x10000)
	want := map[uint64]bool{0x1000a + 0x1000: true, 0x10020 - 0x1000: true, 0x10022 + 0x7f: true}
	if len(got) != len(want) {
		t.Errorf("%#v", got)
	}
	for target := range want {
		if !got[target] {
			t.Errorf("%#x is missing in %#v", target, got)
		}
	}
}
