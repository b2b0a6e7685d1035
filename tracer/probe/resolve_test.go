package probe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// bindings returns the files to which the dynamic linker itself binds a program's functions.
func bindings(t *testing.T, program string, environment []string) map[string]string {
	t.Helper()
	written := filepath.Join(t.TempDir(), "bindings")
	command := exec.Command(program)
	command.Env = append(slices.Clone(environment),
		"LD_BIND_NOW=1", "LD_DEBUG=bindings", "LD_DEBUG_OUTPUT="+written)
	tracertest.NoError(t, command.Run())
	files, err := filepath.Glob(written + ".*")
	if err != nil || len(files) != 1 {
		t.Fatalf("the dynamic linker has written %q, %v", files, err)
	}
	text := tracertest.Must(os.ReadFile(files[0]))(t)

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

// mustProbe asserts that a function is probed in a file, at most a few instructions after its
// address by nm. Names of one address are one function, which is probed under one of them.
func mustProbe(t *testing.T, files []FileSites, name, path string, defined map[string]uint64) {
	t.Helper()
	file := tracertest.Must(elf.Open(path))(t)
	defer file.Close()
	if defined[name] == 0 {
		t.Fatalf("nm finds no %s in %s: the test is wrong", name, path)
	}

	offset := fileOffset(t, file, defined[name])
	for _, file := range files {
		for _, s := range file.Sites {
			isSame := file.Mapping.Path == path && defined[s.Function.Name] == defined[name]
			if isSame && s.Offset >= offset && s.Offset < offset+64 {
				return
			}
			if s.Function.Name == name {
				t.Errorf("%s is probed in %s at %#x", name, file.Mapping.Path, s.Offset)
			}
		}
	}

	t.Errorf("%s is not probed in %s at %#x", name, path, offset)
}

// mustProbeOnce asserts that no function and no instruction of a file has two probes, that all sites
// have different numbers, and that the kernel finds the files.
func mustProbeOnce(t *testing.T, files []FileSites) {
	t.Helper()
	numbers, names := make(map[int]bool), make(map[string]bool)
	for _, file := range files {
		byPath, err := os.Stat(file.Mapping.Path)
		byLink, err2 := os.Stat(file.Path.String())
		if err != nil || err2 != nil || !os.SameFile(byPath, byLink) {
			t.Errorf("%s is not %s: %v, %v", file.Path, file.Mapping.Path, err, err2)
		}

		offsets := make(map[uint64]bool)
		for _, s := range file.Sites {
			name := s.Function.Name
			if offsets[s.Offset] || numbers[s.number] || names[name] {
				t.Errorf("%s in %s at %#x is probed twice, or has the number %d of another",
					name, file.Mapping.Path, s.Offset, s.number)
			}
			offsets[s.Offset], numbers[s.number] = true, true
			names[name] = s.Function.Form != bpf.CallExit
		}
	}
}

func TestResolve(t *testing.T) {
	preload := tracertest.Build(t, "preload.c", "-shared", "-fPIC")
	for name, c := range map[string]struct {
		environment []string
		preloaded   int
	}{"C library": {nil, 0}, "preloaded": {[]string{"LD_PRELOAD=" + preload}, 4}} {
		t.Run(name, func(t *testing.T) {
			program := tracertest.Build(t, "semantics.c", "-pthread")
			environment := append(os.Environ(), c.environment...)
			want := bindings(t, program, environment)
			command := exec.Command(program)
			command.Env = environment
			files := tracertest.Must(Resolve(start(t, command)))(t)

			preloaded := 0
			for _, f := range Functions {
				path, ok := want[f.Name]
				if !ok {
					t.Fatalf("the dynamic linker binds no %s: the test is wrong", f.Name)
				}
				mustProbe(t, files, f.Name, path, addresses(t, path, "-D", "--defined-only"))
				if path == preload {
					preloaded++
				}
			}
			if preloaded != c.preloaded {
				t.Errorf("%d functions are preloaded, want %d", preloaded, c.preloaded)
			}
			mustProbeOnce(t, files)
		})
	}

	for _, flag := range []string{"-static", "-static-pie"} {
		t.Run(flag, func(t *testing.T) {
			program := tracertest.Build(t, "semantics.c", "-pthread", flag)
			files := tracertest.Must(Resolve(start(t, exec.Command(program))))(t)
			defined := addresses(t, program)
			for _, f := range Functions {
				mustProbe(t, files, f.Name, program, defined)
			}
			mustProbeOnce(t, files)
		})
	}

	t.Run("deleted program", func(t *testing.T) {
		program := filepath.Join(t.TempDir(), "line\nbreak")
		copyProgram(t, program, "-static")
		target := tracertest.Start(t, program)
		target.Await("ready")
		tracertest.NoError(t, os.Remove(program))
		files, err := Resolve(open(t, target.PID()))
		hasMalloc := func(f FileSites) bool { return slices.Contains(f.Functions(), "malloc") }
		if err != nil || !slices.ContainsFunc(files, hasMalloc) {
			t.Errorf("%+v, %v", files, err)
		}
	})
}

func copyProgram(t *testing.T, path string, flags ...string) {
	t.Helper()
	program := tracertest.Build(t, "semantics.c", append(flags, "-pthread")...)
	code := tracertest.Must(os.ReadFile(program))(t)
	tracertest.NoError(t, os.WriteFile(path, code, 0o700))
}

func TestResolveErrors(t *testing.T) {
	const bare = "-nostdlib -static -ffreestanding -fno-stack-protector -fno-omit-frame-pointer"
	for name, c := range map[string]struct {
		source, flags string
		want          error
	}{
		"stripped":     {"semantics.c", "-pthread -static -Wl,--strip-all", ErrNoAllocator},
		"stripped PIE": {"semantics.c", "-pthread -static-pie -Wl,--strip-all", ErrNoAllocator},
		"no malloc":    {"bare.c", bare, ErrNoAllocator},
		"32-bit":       {"bare.c", bare + " -m32", Err32Bit},
	} {
		t.Run(name, func(t *testing.T) {
			program := tracertest.Build(t, c.source, strings.Fields(c.flags)...)
			if files, err := Resolve(start(t, exec.Command(program))); !errors.Is(err, c.want) {
				t.Errorf("%+v, %v; want %v", files, err, c.want)
			}
		})
	}
}

// debug/elf would turn this program into gigabytes: each of its version definitions has 65535
// names, one inside the other.
func TestResolveHostileVersions(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	copyProgram(t, program, "-rdynamic")
	definitions := filepath.Join(t.TempDir(), "definitions")
	// Elf64_Verdef, Elf64_Verdaux.
	one := append([]byte{1, 0, 0, 0, 2, 0, 0xff, 0xff, 0, 0, 0, 0, 20, 0, 0, 0, 28, 0, 0, 0},
		make([]byte, 8)...)
	tracertest.NoError(t, os.WriteFile(definitions, bytes.Repeat(one, 20_000), 0o600))
	tracertest.Run(t, "objcopy", "--add-section", ".hostile="+definitions, program)
	makeVersions(t, program)
	p, maps := start(t, exec.Command(program))

	allocated := tracertest.Allocated(func() {
		if _, err := Resolve(p, maps); err != nil {
			t.Error(err)
		}
	})
	if allocated > 64<<20 {
		t.Errorf("%d bytes allocated", allocated)
	}
}

// makeVersions turns the section .hostile into one of version definitions.
func makeVersions(t *testing.T, path string) {
	t.Helper()
	file := tracertest.Must(elf.Open(path))(t)
	defer file.Close()
	isHostile := func(s *elf.Section) bool { return s.Name == ".hostile" }
	at := slices.IndexFunc(file.Sections, isHostile)
	raw := tracertest.Must(os.ReadFile(path))(t)
	headers := binary.LittleEndian.Uint64(raw[40:])
	binary.LittleEndian.PutUint32(raw[headers+64*uint64(at)+4:], uint32(elf.SHT_GNU_VERDEF))
	tracertest.NoError(t, os.WriteFile(path, raw, 0o700))
}

// forwarders are the functions of each allocator that only call others of it, by objdump's listing,
// read by hand.
var forwarders = map[string][]string{
	"libjemalloc.so.2": {
		"_ZdlPv", "_ZdaPv", "_ZdlPvmSt11align_val_t", "_Znam", "_ZnwmSt11align_val_t",
	},
	"libtcmalloc_minimal.so.4": {},
	"libmimalloc.so.2": {
		"valloc", "posix_memalign", "_ZdlPvm", "mi_free_size", "mi_free_size_aligned", "mi_realloc",
		"mi_new_aligned", "mi_malloc_aligned",
	},
	"libstdc++.so.6": {"_Znwm", "_Znam", "_ZdlPv", "_ZdaPvm", "_ZnwmSt11align_val_t"},
}

// Functions that only call others are not probed. Functions that may throw have probes of their
// return instructions, by objdump, and no return probe: that would end the process.
func TestResolveAllocators(t *testing.T) {
	for library, names := range forwarders {
		t.Run(library, func(t *testing.T) {
			command := exec.Command(tracertest.Build(t, "operators.cc"))
			command.Env = []string{"LD_PRELOAD=" + library}
			files := tracertest.Must(Resolve(start(t, command)))(t)
			mustProbeOnce(t, files)

			hasOperators := false
			for _, file := range files {
				path := file.Mapping.Path
				for _, name := range names {
					if slices.Contains(file.Functions(), name) {
						t.Errorf("%s in %s is probed", name, path)
					}
				}

				returns, text := returnsOf(t, path)
				for _, s := range file.Sites {
					hasOperators = hasOperators || s.Function.Name == "return of _Znwm"
					isThrowing := func(other Site) bool {
						return s.Function.Throws &&
							other.Function == s.Function
					}
					if slices.ContainsFunc(file.only(Function.returns).Sites, isThrowing) {
						t.Errorf("%s in %s has a return probe", s.Function.Name, path)
					}
					isExit := s.Function.Form == bpf.CallExit
					if isExit && !returns[s.Offset-text.Offset+text.Addr] {
						t.Errorf("%s at %#x of %s is not a return", s.Function.Name, s.Offset, path)
					}
				}
			}
			if !hasOperators && !strings.HasPrefix(library, "libstdc++") {
				t.Error("no return of operator new is probed")
			}
		})
	}
}

// returnsOf returns the addresses of a file's return instructions by objdump, and its code section.
func returnsOf(t *testing.T, path string) (map[uint64]bool, *elf.Section) {
	t.Helper()
	file, _ := openBoth(t, path)
	returns := make(map[uint64]bool)
	for _, l := range disassemble(t, path) {
		returns[l.address] = l.mnemonic == "ret" || l.mnemonic == "repz" || l.mnemonic == "bnd"
	}
	return returns, file.Section(".text")
}

// Any number of libraries can precede the C library, each with names as large as the limit for one.
func TestResolveManyNames(t *testing.T) {
	const size, most = 128 << 20, 1500 << 20
	var libraries []string
	for i := range 16 {
		path := filepath.Join(t.TempDir(), fmt.Sprintf("lib%d.so", i))
		tracertest.BuildInflated(t, path, size)
		libraries = append(libraries, path)
	}

	command := exec.Command(tracertest.Build(t, "semantics.c", "-pthread"))
	command.Env = append(os.Environ(), "LD_PRELOAD="+strings.Join(libraries, ":"))
	p, maps := start(t, command)
	before := tracertest.BytesRead(t)
	files, err := Resolve(p, maps)
	if !errors.Is(err, ErrManyNames) {
		t.Errorf("%+v, %v; want %v", files, err, ErrManyNames)
	}
	if got := tracertest.BytesRead(t) - before; got > most {
		t.Errorf("%d MiB were read, want %d at most", got>>20, most>>20)
	}
}
