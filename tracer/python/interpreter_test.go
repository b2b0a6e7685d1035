package python

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
	"github.com/allocscope/allocscope/tracer/tracertest"

	"github.com/allocscope/allocscope/tracer/hostile"
)

func TestFind(t *testing.T) {
	for name, command := range tracertest.Interpreters(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, printed := startReady(t, append(command, "-c", waitPy)...)
			mustFindIn(t, p, printed, "")
		})
	}

	// The system's interpreter is one file without a library of its own.
	t.Run("deleted file", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "renamed")
		tracertest.Run(t, "cp", "/usr/bin/python3", program)
		p, printed := startReady(t, program, "-c", waitPy)
		tracertest.NoError(t, os.Remove(program))

		mustFindIn(t, p, printed, "renamed (deleted)")
	})

	t.Run("not started yet", func(t *testing.T) {
		program := buildC(t, fakeC, "-rdynamic", "-DRUNTIME=0", "-DVERSION=0x030c01f0", "-DLOOP")
		p, _ := startReady(t, program)
		mustFindIn(t, p, []string{"3.12"}, filepath.Base(program))
	})

	t.Run("process without Python", func(t *testing.T) {
		p, _ := startReady(t, "sh", "-c", "echo ready; read line")
		if found, err := find(t, p); found != nil || err != nil {
			t.Errorf("found %+v, %v", found, err)
		}
	})

	t.Run("ended process", func(t *testing.T) {
		target := tracertest.Start(t, "/usr/bin/python3", "-c", waitPy)
		target.Await("ready")
		p := openProcess(t, target.PID())
		maps := tracertest.Must(p.Maps())(t)

		target.Hangup()
		if found, _ := Find(p, maps); found != nil {
			t.Errorf("found %+v", found)
		}
	})
}

const embeddingC = `
#include <dlfcn.h>
#include <stddef.h>
int main(int argc, char **argv) {
	void *library = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
	if (library == NULL) return 2;
	void (*initialize)(void) = (void (*)(void))dlsym(library, "Py_Initialize");
	int (*run)(const char *) = (int (*)(const char *))dlsym(library, "PyRun_SimpleString");
	initialize();
	return run(argv[argc - 1]);
}
`

// A library is found by its exports, not by its name.
func TestFindEmbedded(t *testing.T) {
	program := buildC(t, embeddingC, "-ldl")
	libraries := 0
	for name, command := range tracertest.Interpreters(t) {
		path, home := library(t, command)
		if path == "" {
			continue
		}

		libraries++

		t.Run(name, func(t *testing.T) {
			t.Parallel()
			renamed := filepath.Join(t.TempDir(), "libodd.so.7")
			tracertest.Run(t, "cp", path, renamed)
			p, printed := startReady(t, "env", "PYTHONHOME="+home, program, renamed, waitPy)
			mustFindIn(t, p, printed, filepath.Base(renamed))
		})
	}

	if libraries == 0 {
		t.Fatal("no interpreter has a library")
	}
}

// fakeC is a program that looks like an interpreter, depending on the macros that it is compiled
// with.
const fakeC = `
#include <stdio.h>
struct { char cookie[8]; unsigned long words[110]; } _PyRuntime = { RUNTIME };
#ifdef VERSION
const unsigned long Py_Version = VERSION;
#endif
#ifdef LOOP
int _PyEval_EvalFrameDefault(int n) { return n + 1; }
#endif
#ifdef EXPORT
int EXPORT(void) { return 7; }
#endif
int main(void) { puts("ready"); fflush(stdout); return getchar(); }
`

func TestFindRefuses(t *testing.T) {
	// offsets sets the start of _PyRuntime to a struct _Py_DebugOffsets.
	offsets := func(version, freeThreaded uint64, flags ...string) []string {
		return append(flags, fmt.Sprintf(`-DRUNTIME="xdebugpy",{%#x,%d}`, version, freeThreaded))
	}

	supported := " (CPython " + cpython.Supported + " are supported)"
	for name, c := range map[string]struct {
		flags []string
		want  string
	}{
		"newer version": {offsets(0x036300f0, 0), "CPython 3.99" + supported},
		"old version":   {offsets(0x030c00f0, 0), "CPython 3.12" + supported}, // had none
		"no version":    {offsets(1<<63-1, 0), "CPython of version 0x7fffffffffffffff" + supported},
		"pre-release":   {offsets(0x030e00b2, 0), "a preview of CPython 3.14 (run a release)"},
		"Py_REF_DEBUG before 3.13": {
			[]string{"-DRUNTIME=0", "-DVERSION=0x030c00f0", "-DEXPORT=_Py_NegativeRefcount"},
			"a debug build of CPython before 3.13 (run a release build)",
		},
		"Py_TRACE_REFS": {
			offsets(0x030d00f0, 0, "-DEXPORT=PyModule_Create2TraceRefs"),
			"a build of CPython with Py_TRACE_REFS (run a release build)",
		},
		"debug offsets of zeroes": {
			offsets(0x030e00f0, 0), "CPython 3.14 with unknown structures: " +
				"names and line table of code objects are not in a row (a modified build?)",
		},
		"newer version without debug offsets": {
			[]string{"-DRUNTIME=0", "-DVERSION=0x030d00f0"},
			"CPython 3.13 without offsets for debuggers (a modified build?)",
		},
		"threads elsewhere": {
			[]string{
				`-DRUNTIME="",{[1]=(unsigned long)&_PyRuntime+8,[4]=(unsigned long)&_PyRuntime}`,
				"-DVERSION=0x030b00f0",
			},
			"its threads are not where CPython 3.11 keeps them (a modified build?)",
		},
		"no evaluation loop": {
			[]string{"-DRUNTIME=0", "-DVERSION=0x030b00f0"},
			"_PyEval_EvalFrameDefault is not exported (a modified build?)",
		},
		"PyPy": {
			[]string{"-D_PyRuntime=hidden", "-DRUNTIME=0", "-DEXPORT=pypy_execute_source"},
			"PyPy (only frames of CPython can be read)",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := startReady(t, buildC(t, fakeC, append(c.flags, "-rdynamic")...))
			mustRefuse(t, p, c.want)
		})
	}

	// Old versions of pyenv, where there are any.
	home := tracertest.Must(os.UserHomeDir())(t)

	for version, want := range map[string]string{
		"2.7": "CPython 2" + supported,
		"3.6": "CPython 3.6 or older" + supported,
		"3.7": "CPython 3.7" + supported,
	} {
		programs, _ := filepath.Glob(
			filepath.Join(home, ".pyenv/versions", version+".*/bin/python"+version))
		for _, program := range programs {
			t.Run(version, func(t *testing.T) {
				p, _ := startReady(t, program, "-u", "-c",
					"import sys\nprint('ready')\nsys.stdin.read()")
				mustRefuse(t, p, want)
			})
		}
	}
}

func mustRefuse(t *testing.T, p *process.Process, want string) {
	t.Helper()
	found, err := find(t, p)
	if found != nil || !errors.Is(err, ErrUnsupported) {
		t.Fatalf("found %+v, %v", found, err)
	}

	want = ": unsupported interpreter: " + want
	if !strings.HasPrefix(err.Error(), "find Python in /") ||
		!strings.HasSuffix(err.Error(), want) {
		t.Errorf("%q, want %q", err, want)
	}
}

func TestCandidates(t *testing.T) {
	file := func(path string, inode uint64) process.Mapping {
		return process.Mapping{Path: path, Device: 1, Inode: inode, Execute: true}
	}

	other, again := file("/usr/lib/libother.so", 1), file("/usr/lib/libother.so", 1)
	again.Start = 1 << 20
	named, program := file("/opt/libpython3.12.so.1.0", 2), file("/usr/bin/program", 3)
	data := process.Mapping{Path: "/usr/lib/libdata.so", Device: 1, Inode: 4}
	vdso := process.Mapping{Path: "[vdso]", Execute: true}

	got := candidates(&process.Process{Executable: program.Path},
		[]process.Mapping{other, again, data, named, vdso, program})
	if want := []process.Mapping{program, named, other}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

const bias = 0x7f0000000000

// evalLoop is findEvalLoop on a file, without unused ranges.
func evalLoop(t testing.TB, path string) ([]bpf.CodeRange, error) {
	t.Helper()
	f := tracertest.Must(hostile.Open(nil, path, 0, 0))(t)
	defer f.Close()

	file := tracertest.Must(symbol.Open(f, path))(t)

	loop, err := findEvalLoop(file, bias)
	return slices.DeleteFunc(loop[:], func(r bpf.CodeRange) bool { return r.Start == 0 }), err
}

// nmLoop is nm's output about the evaluation loop: the function first, then its cold parts.
func nmLoop(t testing.TB, path string) (loop []bpf.CodeRange) {
	t.Helper()
	for line := range strings.Lines(tracertest.Run(t, "nm", "-S", "--defined-only", path)) {
		var start, size uint64
		var kind, name string
		if n, _ := fmt.Sscanf(line, "%x %x %s %s", &start, &size, &kind, &name); n < 4 {
			continue
		}

		r := bpf.CodeRange{Start: start + bias, End: start + size + bias}
		if name == evalFunction {
			loop = slices.Insert(loop, 0, r)
		} else if strings.HasPrefix(name, evalFunction+".cold") {
			loop = append(loop, r)
		}
	}

	return loop
}

func mustHaveLoop(t *testing.T, path string, want []bpf.CodeRange) {
	t.Helper()
	if got, err := evalLoop(t, path); err != nil || !slices.Equal(got, want) {
		t.Errorf("%s: loop %+v, %v, want %+v", path, got, err, want)
	}
}

// evalLoopC has a cold part, and a jump to another function.
const evalLoopC = `
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

func TestFindEvalLoop(t *testing.T) {
	withSymbols := 0
	for name, command := range tracertest.Interpreters(t) {
		t.Run(name, func(t *testing.T) {
			path, _ := library(t, command)
			if path != "" && len(nmLoop(t, path)) > 0 {
				withSymbols++
				named := nmLoop(t, path)
				mustHaveLoop(t, path, named)
				// A part shorter than a call and a jump cannot be reached, so no jump leads there.
				mustHaveLoop(t, tracertest.Strip(t, path), slices.DeleteFunc(named,
					func(r bpf.CodeRange) bool { return r.End-r.Start < 10 }))

				return
			}

			// Debian's programs are stripped; their loops have a cold part, from 3.9 on.
			path = "/usr/bin/python3"
			switch {
			case strings.HasPrefix(name, "debian-"): // chroot FOLDER PROGRAM
				path = tracertest.Must(filepath.EvalSymlinks(filepath.Join(command[1:]...)))(t)
			case name != "system":
				t.Skip("has neither symbols nor a known shape")
			}

			loop, err := evalLoop(t, path)
			if err != nil || len(loop) != 2 || loop[1].End-loop[1].Start < 4096 {
				t.Errorf("loop %+v, %v", loop, err)
			}
		})
	}

	if withSymbols == 0 {
		t.Error("no interpreter has symbols (pyenv's have)")
	}

	for _, flags := range []string{
		"-O2", "-O3", "-O2 -fcf-protection=full", "-O2 -fno-omit-frame-pointer", "-O2 -fno-plt",
		"-O2 -Wl,-z,lazy -fcf-protection=none",
	} {
		t.Run("gcc "+flags, func(t *testing.T) {
			path := buildC(t, evalLoopC, append(strings.Fields(flags), "-shared", "-fPIC")...)
			named := nmLoop(t, path)
			if len(named) != 2 {
				t.Fatalf("nm prints %+v", named)
			}

			mustHaveLoop(t, path, named)
			mustHaveLoop(t, tracertest.Strip(t, path), named)
		})
	}

	t.Run("without unwind information", func(t *testing.T) {
		path := buildC(t, evalLoopC, "-shared", "-fPIC", "-fno-asynchronous-unwind-tables",
			"-nostartfiles", "-Wl,--no-eh-frame-hdr")
		mustHaveLoop(t, tracertest.Strip(t, path), nmLoop(t, path)[:1])
	})

	for count := 1; count <= maxEvalRanges+2; count++ {
		t.Run(strconv.Itoa(count)+" ranges", func(t *testing.T) {
			path := build(t, "source.s", chainOfRanges(count), "-nostdlib", "-shared")
			loop, err := evalLoop(t, path)
			switch {
			case count > maxEvalRanges:
				if !errors.Is(err, ErrUnsupported) {
					t.Errorf("%+v, %v", loop, err)
				}
			case err != nil || len(loop) != count:
				t.Errorf("%d ranges, %v: %+v", len(loop), err, loop)
			}
		})
	}

	t.Run("arm64", testEvalLoopOfAArch64)
}

// testEvalLoopOfAArch64 has a loop in three ranges without symbols. This machine's assembler writes
// the words of the instructions, whichever its own are.
func testEvalLoopOfAArch64(t *testing.T) {
	const machineOffset, rangeBytes = 18, 16
	path := build(t, "source.s", `
.p2align 4
.globl _PyEval_EvalFrameDefault
.type _PyEval_EvalFrameDefault,@function
_PyEval_EvalFrameDefault: .cfi_startproc simple
.cfi_def_cfa 31, 0
.long 0xd10143ff /* sub sp, sp, #80 */
.cfi_def_cfa_offset 80
.long 0xb4000060 /* cbz x0, .+12 */
.long 0x910143ff /* add sp, sp, #80 */
.long 0xd65f03c0 /* ret */
.cfi_endproc
.size _PyEval_EvalFrameDefault,.-_PyEval_EvalFrameDefault
.cfi_startproc simple
.cfi_def_cfa 31, 80
.long 0x54000080 /* b.eq .+16 */
.long 0x17fffffd /* b .-12 */
.long 0xd503201f /* nop */
.long 0xd503201f /* nop */
.cfi_endproc
.cfi_startproc simple
.cfi_def_cfa 31, 80
.long 0x94000004 /* bl .+16 */
.long 0xb7f80060 /* tbnz x0, #63, .+12: another function */
.long 0x17fffff6 /* b .-40 */
.long 0xd503201f /* nop */
.cfi_endproc
.cfi_startproc simple
.cfi_def_cfa 31, 0
.long 0xd65f03c0 /* ret */
.cfi_endproc
`, "-nostdlib", "-shared")

	content := tracertest.Must(os.ReadFile(path))(t)
	content[machineOffset] = byte(elf.EM_AARCH64)
	path = filepath.Join(t.TempDir(), "arm64.so")
	tracertest.NoError(t, os.WriteFile(path, content, 0o600))

	loop, err := evalLoop(t, path)
	if err != nil || len(loop) != 3 {
		t.Fatalf("%+v, %v", loop, err)
	}
	for i, r := range loop {
		start := loop[0].Start + uint64(i)*rangeBytes
		if want := (bpf.CodeRange{Start: start, End: start + rangeBytes}); r != want {
			t.Errorf("range %d: %+v, want %+v", i, r, want)
		}
	}
}

// chainOfRanges is assembly of a loop in that many ranges. Each jumps to the next and back, the
// last to another function.
func chainOfRanges(count int) string {
	text := ".globl _PyEval_EvalFrameDefault\n.type _PyEval_EvalFrameDefault,@function\n"
	for i := range count {
		name, rule := fmt.Sprintf("range%d", i), ".cfi_def_cfa_offset 80\n"
		if i == 0 {
			name = evalFunction
			rule = "endbr64\npush %rbx\n.cfi_def_cfa_offset 16\nsub $64,%rsp\n.cfi_def_cfa_offset 80\n"
		}

		next := fmt.Sprintf("range%d", i+1)
		if i == count-1 {
			next = "other"
		}

		// The bytes after the jump are no instruction.
		text += fmt.Sprintf(
			".p2align 4\n%s: .cfi_startproc\n%stest %%rdi,%%rdi\njne %s\njmp back\n"+
				".byte 0x06,0x0e,0x27\n.cfi_endproc\n",
			name,
			rule,
			next,
		)

		if i == 0 {
			text += "back: ret\n.size _PyEval_EvalFrameDefault,.-_PyEval_EvalFrameDefault\n"
		}
	}

	return text + ".p2align 4\nother: .cfi_startproc\nret\n.cfi_endproc\n"
}

// The words are from binutils 2.40.
func TestJumpTargetsOfAArch64(t *testing.T) {
	const start = 0x1000
	var code []byte
	for _, word := range []uint32{
		0x14000400, // b .+0x1000
		0x54001fe1, // b.ne .+0x3fc
		0xb4fffbe0, // cbz x0, .-0x84
		0xb7f80040, // tbnz x0, #63, .+8: inside
		0x94000400, // bl .+0x1000: returns
		0xd61f0200, // br x16
	} {
		code = binary.LittleEndian.AppendUint32(code, word)
	}

	want := map[uint64]bool{start + 0x1000: true, start + 4 + 0x3fc: true, start + 8 - 0x84: true}
	if got := jumpTargets(elf.EM_AARCH64, code, start); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// FuzzJumpTargets: whatever the code, targets lie outside of it.
func FuzzJumpTargets(f *testing.F) {
	f.Add([]byte{
		0xf3, 0x0f, 0x1e, 0xfa, 0x0f, 0x84, 0x00, 0x10, 0x00, 0x00, 0xeb, 0xfe, 0xe9, 0xff, 0xff,
		0xff, 0x7f,
	})

	f.Add([]byte{0x06, 0x0e, 0xe8, 0, 0, 0, 0, 0xe3, 0x80, 0xff, 0xe0, 0x70})
	f.Fuzz(func(t *testing.T, code []byte) {
		const start = 1 << 20
		for _, machine := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
			for target := range jumpTargets(machine, code, start) {
				if target >= start && target < start+uint64(len(code)) {
					t.Errorf("%s: %#x is inside", machine, target)
				}
			}
		}
	})
}

func TestRelease(t *testing.T) {
	for want, i := range map[string]Interpreter{
		"3.9":     {Version: "3.9"},
		"3.11.2":  {Version: "3.11", State: State{Hex: 0x030b02f0}},
		"3.13.2t": {Version: "3.13t", State: State{Hex: 0x030d02f0}},
	} {
		if got := i.Release(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}
