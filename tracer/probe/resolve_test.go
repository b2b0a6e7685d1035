package probe

import (
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// run starts a program that says "ready", and gives its process and mappings then.
func run(t *testing.T, command *exec.Cmd) (*process.Process, []process.Mapping) {
	t.Helper()
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	return opened(t, target.PID())
}

func opened(t *testing.T, pid int) (*process.Process, []process.Mapping) {
	t.Helper()
	p, err := process.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	maps, err := p.Maps()
	if err != nil {
		t.Fatal(err)
	}
	return p, maps
}

// bindings is where the dynamic linker itself binds the program's functions to: file by name.
func bindings(t *testing.T, program string, environment []string) map[string]string {
	t.Helper()
	written := filepath.Join(t.TempDir(), "bindings")
	command := exec.Command(program)
	command.Env = append(slices.Clone(environment), "LD_BIND_NOW=1", "LD_DEBUG=bindings", "LD_DEBUG_OUTPUT="+written)
	if err := command.Run(); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(written + ".*")
	if err != nil || len(files) != 1 {
		t.Fatalf("the dynamic linker has written %q, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	bound := make(map[string]string)
	for line := range strings.Lines(string(text)) {
		_, rest, ok := strings.Cut(line, "binding file "+program+" [0] to ")
		file, rest, ok2 := strings.Cut(rest, " [0]: normal symbol `")
		if name, _, ok3 := strings.Cut(rest, "'"); ok && ok2 && ok3 {
			if bound[name], err = filepath.EvalSymlinks(file); err != nil {
				t.Fatal(err)
			}
		}
	}
	return bound
}

// mustProbe fails unless a function is probed in that file, at most a few instructions behind the address that nm says.
// Names with one address are one function, which is probed under one of them.
func mustProbe(t *testing.T, targets []Target, name, path string, defined map[string]uint64) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if defined[name] == 0 {
		t.Fatalf("nm finds no %s in %s: the test is wrong", name, path)
	}
	offset := fileOffset(t, file, defined[name])
	for _, target := range targets {
		for _, s := range target.Sites {
			same := target.File.Path == path && defined[s.Function.Name] == defined[name]
			if same && s.Offset >= offset && s.Offset < offset+codeLength {
				return
			}
			if s.Function.Name == name {
				t.Errorf("%s is probed in %s at %#x", name, target.File.Path, s.Offset)
			}
		}
	}
	t.Errorf("%s is not probed in %s at %#x", name, path, offset)
}

func TestTheFunctionsThatTheDynamicLinkerBindsAreProbed(t *testing.T) {
	program := tracertest.Build(t, "semantics.c", "-pthread")
	preload := tracertest.Build(t, "preload.c", "-shared", "-fPIC")
	for name, c := range map[string]struct {
		environment []string
		preloaded   int
	}{"C library": {nil, 0}, "preloaded": {[]string{"LD_PRELOAD=" + preload}, 4}} {
		t.Run(name, func(t *testing.T) {
			environment := append(os.Environ(), c.environment...)
			want := bindings(t, program, environment)
			command := exec.Command(program)
			command.Env = environment
			targets, err := Resolve(run(t, command))
			if err != nil {
				t.Fatal(err)
			}
			var preloaded int
			for _, f := range Functions {
				path, ok := want[f.Name]
				if !ok {
					t.Fatalf("the dynamic linker binds no %s: the test is wrong", f.Name)
				}
				mustProbe(t, targets, f.Name, path, addresses(t, path, "-D", "--defined-only"))
				if path == preload {
					preloaded++
				}
			}
			if preloaded != c.preloaded {
				t.Errorf("%d functions are preloaded, want %d", preloaded, c.preloaded)
			}
			mustProbeOnce(t, targets)
		})
	}
}

// mustProbeOnce fails if a function or an instruction is probed twice, or if the kernel would not find the file.
func mustProbeOnce(t *testing.T, targets []Target) {
	t.Helper()
	seen := make(map[any]bool)
	for _, target := range targets {
		byPath, err := os.Stat(target.File.Path)
		byLink, err2 := os.Stat(target.Path)
		if err != nil || err2 != nil || !os.SameFile(byPath, byLink) {
			t.Errorf("%s is not %s: %v, %v", target.Path, target.File.Path, err, err2)
		}
		for _, s := range target.Sites {
			place := struct {
				path   string
				offset uint64
			}{target.File.Path, s.Offset}
			if seen[s.Function.Name] || seen[place] {
				t.Errorf("%s in %s at %#x is probed twice", s.Function.Name, target.File.Path, s.Offset)
			}
			seen[s.Function.Name], seen[place] = true, true
		}
	}
}

func TestTheFunctionsOfAStaticProgramAreProbedInIt(t *testing.T) {
	for _, flag := range []string{"-static", "-static-pie"} {
		t.Run(flag, func(t *testing.T) {
			program := tracertest.Build(t, "semantics.c", "-pthread", flag)
			targets, err := Resolve(run(t, exec.Command(program)))
			if err != nil {
				t.Fatal(err)
			}
			defined := addresses(t, program)
			for _, f := range Functions {
				mustProbe(t, targets, f.Name, program, defined)
			}
			mustProbeOnce(t, targets)
		})
	}
}

func TestAStaticProgramWithoutSymbolsHasNoAllocator(t *testing.T) {
	for _, flag := range []string{"-static", "-static-pie"} {
		program := tracertest.Build(t, "semantics.c", "-pthread", flag, "-Wl,--strip-all")
		if targets, err := Resolve(run(t, exec.Command(program))); !errors.Is(err, ErrNoAllocator) {
			t.Errorf("%s: %+v, %v; want %v", flag, targets, err, ErrNoAllocator)
		}
	}
}

var bareFlags = []string{"-nostdlib", "-static", "-ffreestanding", "-fno-stack-protector", "-fno-omit-frame-pointer"}

func TestAProgramWithoutMallocHasNoAllocator(t *testing.T) {
	program := tracertest.Build(t, "bare.c", bareFlags...)
	if targets, err := Resolve(run(t, exec.Command(program))); !errors.Is(err, ErrNoAllocator) {
		t.Errorf("%+v, %v; want %v", targets, err, ErrNoAllocator)
	}
}

func TestA32BitProgramIsRefused(t *testing.T) {
	program := tracertest.Build(t, "bare.c", append(bareFlags, "-m32")...)
	if targets, err := Resolve(run(t, exec.Command(program))); !errors.Is(err, Err32Bit) {
		t.Errorf("%+v, %v; want %v", targets, err, Err32Bit)
	}
}

func TestAProgramThatWasDeletedIsStillRead(t *testing.T) {
	program := filepath.Join(t.TempDir(), "line\nbreak")
	code, err := os.ReadFile(tracertest.Build(t, "semantics.c", "-pthread", "-static"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, code, 0o700); err != nil {
		t.Fatal(err)
	}
	target := tracertest.Start(t, program)
	target.Await("ready")
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	p, maps := opened(t, target.PID())
	targets, err := Resolve(p, maps)
	if err != nil || !slices.ContainsFunc(targets, func(t Target) bool { return slices.Contains(t.Functions(), "malloc") }) {
		t.Errorf("%+v, %v", targets, err)
	}
}
