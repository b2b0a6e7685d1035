package python

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestEveryInterpreterIsFoundAndItsFramesAreThoseItShows(t *testing.T) {
	for name, command := range interpreterCommands(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, r := startFrames(t, exec.Command(command[0], append(command[1:], "-c", frames(t))...))
			found, err := find(t, p)
			if err != nil || found == nil {
				t.Fatalf("found %+v, %v", found, err)
			}
			mustTrace(t, p, found, r)
		})
	}
}

// The system's interpreter is one file without a library of its own.
func TestAnInterpreterIsFoundInADeletedFile(t *testing.T) {
	program := filepath.Join(t.TempDir(), "renamed")
	runTool(t, "cp", "/usr/bin/python3", program)
	p, r := startFrames(t, exec.Command(program, "-c", frames(t)))
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	found, err := find(t, p)
	if err != nil || found == nil {
		t.Fatalf("found %+v, %v", found, err)
	}
	if !strings.HasSuffix(found.Module.Path, "renamed (deleted)") {
		t.Errorf("found in %s", found.Module.Path)
	}
	mustTrace(t, p, found, r)
}

const embeddingC = `
#ifdef LOADED
#include <dlfcn.h>
#include <stddef.h>
#define FUNCTION(result, name, parameters) result (*name) parameters = (result (*) parameters)dlsym(library, #name)
#else
extern void Py_Initialize(void);
extern int PyRun_SimpleString(const char *);
#endif
int main(int argc, char **argv) {
#ifdef LOADED
	void *library = dlopen(argv[2], RTLD_NOW | RTLD_GLOBAL);
	if (library == NULL) return 2;
	FUNCTION(void, Py_Initialize, (void));
	FUNCTION(int, PyRun_SimpleString, (const char *));
#endif
	Py_Initialize();
	return PyRun_SimpleString(argv[1]);
}
`

// library gives the shared library of an interpreter and its home; they are empty if it has none.
func library(t testing.TB, command []string) (path, home string) {
	t.Helper()
	const ask = "import sys, sysconfig; v = sysconfig.get_config_var; print(v('LIBDIR') + '/' + v('LDLIBRARY')); print(sys.base_prefix)"
	path, home, _ = strings.Cut(strings.TrimSpace(runTool(t, command[0], append(command[1:], "-c", ask)...)), "\n")
	if len(command) > 1 || filepath.Ext(path) != ".so" {
		return "", ""
	}
	return path, home
}

func TestAnEmbeddedInterpreterIsFound(t *testing.T) {
	libraries := 0
	for name, command := range interpreterCommands(t) {
		path, home := library(t, command)
		if path == "" {
			continue
		}
		libraries++
		odd := filepath.Join(t.TempDir(), "libodd.so.7")
		runTool(t, "cp", path, odd)
		for how, arguments := range map[string][]string{
			"linked": {buildC(t, embeddingC, path, "-Wl,-rpath,"+filepath.Dir(path)), frames(t)},
			"loaded": {buildC(t, embeddingC, "-DLOADED", "-ldl"), frames(t), path},
			"loaded from a file that is not named after it": {buildC(t, embeddingC, "-DLOADED", "-ldl"), frames(t), odd},
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				program := exec.Command(arguments[0], arguments[1:]...)
				program.Env = append(os.Environ(), "PYTHONHOME="+home)
				p, r := startFrames(t, program)
				found, err := find(t, p)
				if err != nil || found == nil {
					t.Fatalf("found %+v, %v", found, err)
				}
				mustTrace(t, p, found, r)
			})
		}
	}
	if libraries == 0 {
		t.Fatal("no interpreter has a library")
	}
}

func TestLikelyFilesAreLookedAtFirstAndEachOnce(t *testing.T) {
	file := func(path string, inode uint64) process.Mapping {
		return process.Mapping{Path: path, Device: 1, Inode: inode, Execute: true}
	}
	other, again := file("/usr/lib/libother.so", 1), file("/usr/lib/libother.so", 1)
	again.Start = 1 << 20
	named, program := file("/opt/libpython3.12.so.1.0", 2), file("/usr/bin/program", 3)
	data := process.Mapping{Path: "/usr/lib/libdata.so", Device: 1, Inode: 4}
	vdso := process.Mapping{Path: "[vdso]", Execute: true}
	got := candidates(&process.Process{Executable: program.Path}, []process.Mapping{other, again, data, named, vdso, program})
	if want := []process.Mapping{program, named, other}; !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestAProcessWithoutPythonHasNone(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command("cat"))
	target.Say("ready")
	target.Await("ready")
	if found, err := find(t, openProcess(t, target.PID())); found != nil || err != nil {
		t.Errorf("found %+v, %v", found, err)
	}
}

// Old versions of pyenv, where there are any.
func TestAnOldPythonIsRefusedInWords(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Fatal(err)
	}
	refused := 0
	for version, words := range map[string]string{
		"2.7": "CPython 2 (CPython 3.8 to 3.14 are supported)",
		"3.6": "CPython 3.6 or older (CPython 3.8 to 3.14 are supported)",
		"3.7": "CPython 3.7 (CPython 3.8 to 3.14 are supported)",
	} {
		programs, _ := filepath.Glob(filepath.Join(home, ".pyenv", "versions", version+".*", "bin", "python"+version))
		for _, program := range programs {
			refused++
			t.Run(version, func(t *testing.T) {
				p := startReady(t, exec.Command(program, "-u", "-c", "import sys\nprint('ready')\nsys.stdin.read()"))
				mustRefuse(t, p, words)
			})
		}
	}
	if refused == 0 {
		t.Log("pyenv has no old version")
	}
}

// fakeC is a program that looks like an interpreter, by the macros that it is compiled with.
const fakeC = `
#include <stdio.h>
struct { char cookie[8]; unsigned long words[100]; } _PyRuntime = { RUNTIME };
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

func TestAnUnknownInterpreterIsRefusedInWords(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		words string
	}{
		"a newer version":          {fake(0x030f00f0, 0), "CPython 3.15 (CPython 3.8 to 3.14 are supported)"},
		"a version of another age": {fake(0x7fffffffffffffff, 0), "CPython of version 0x7fffffffffffffff (CPython 3.8 to 3.14 are supported)"},
		"a preview":                {fake(0x030e00b2, 0), "a preview of CPython 3.14 (run a release)"},
		"a free-threaded build":    {fake(0x030d00f0, 1), "a free-threaded build of CPython 3.13, whose objects lie in an allocator of its own that source heap does not see: mapping and fault measure them (run one with the GIL)"},
		"an older version with offsets": {
			fake(0x030c00f0, 0), "CPython 3.12 (CPython 3.8 to 3.14 are supported)",
		},
		"a table of zeroes": {
			fake(0x030e00f0, 0),
			"CPython 3.14 with unknown structures: names and line table of code objects are not in a row (a modified build?)",
		},
		"a debug build": {
			append(fake(0x030d00f0, 0), "-DEXPORT=_Py_NegativeRefcount"), "a debug build of CPython (run a release build)",
		},
		"a build that traces references": {
			append(fake(0x030d00f0, 0), "-DEXPORT=PyModule_Create2TraceRefs"), "a debug build of CPython (run a release build)",
		},
		"an older version that gives a newer number": {
			[]string{"-DRUNTIME=0", "-DVERSION=0x030d00f0"}, "CPython 3.13 without offsets for debuggers (a modified build?)",
		},
		"an older version whose threads are elsewhere": {
			[]string{`-DRUNTIME="",{[1]=(unsigned long)&_PyRuntime+8,[4]=(unsigned long)&_PyRuntime}`, "-DVERSION=0x030b00f0"},
			"its threads are not where CPython 3.11 keeps them (a modified build?)",
		},
		"a version without a loop": {
			[]string{"-DRUNTIME=0", "-DVERSION=0x030b00f0"}, "_PyEval_EvalFrameDefault is not exported (a modified build?)",
		},
		"PyPy": {[]string{"-D_PyRuntime=hidden", "-DRUNTIME=0", "-DEXPORT=pypy_execute_source"}, "PyPy (CPython 3.8 to 3.14 are supported)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program := buildC(t, fakeC, append(c.flags, "-rdynamic")...)
			mustRefuse(t, startReady(t, exec.Command(program)), c.words)
		})
	}
}

// fake gives flags for a runtime that begins with offsets for debuggers.
func fake(version, freeThreaded uint64) []string {
	return []string{fmt.Sprintf(`-DRUNTIME="xdebugpy",{%#x,%d}`, version, freeThreaded)}
}

func TestAnInterpreterThatIsNotStartedYetIsFound(t *testing.T) {
	program := buildC(t, fakeC, "-rdynamic", "-DRUNTIME=0", "-DVERSION=0x030c01f0", "-DLOOP")
	found, err := find(t, startReady(t, exec.Command(program)))
	if err != nil || found == nil || found.Version != "3.12" {
		t.Errorf("found %+v, %v", found, err)
	}
}

func TestAProcessThatHasEndedHasNoInterpreter(t *testing.T) {
	target := tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", "import sys; print('ready', flush=True); sys.stdin.read()"))
	target.Await("ready")
	p := openProcess(t, target.PID())
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	target.Hangup()
	if found, _ := Find(p, maps); found != nil {
		t.Errorf("found %+v", found)
	}
}

func mustRefuse(t *testing.T, p *process.Process, words string) {
	t.Helper()
	found, err := find(t, p)
	if found != nil || !errors.Is(err, ErrUnsupported) {
		t.Fatalf("found %+v, %v", found, err)
	}
	if want := "unsupported interpreter: " + words; !strings.HasPrefix(err.Error(), "find Python in /") || !strings.HasSuffix(err.Error(), ": "+want) {
		t.Errorf("%q, want %q", err, want)
	}
}
