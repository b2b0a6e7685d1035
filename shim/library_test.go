package shim

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestLibrary checks the imports and exports of the libraries for both architectures.
func TestLibrary(t *testing.T) {
	for name, arch := range map[string]struct {
		machine   elf.Machine
		nop       []byte
		arguments string
	}{
		"amd64": {elf.EM_X86_64, []byte{0x90}, "8@%rdi 8@%rsi 8@%rdx"},
		"arm64": {elf.EM_AARCH64, []byte{0x1f, 0x20, 0x03, 0xd5}, "8@x0 8@x1 8@x2"},
	} {
		t.Run(name, func(t *testing.T) {
			path := "allocscope_shim_" + name + ".so"
			file := tracertest.Must(elf.Open(path))(t)
			defer file.Close()

			if file.Machine != arch.machine || file.Type != elf.ET_DYN {
				t.Errorf("%v of %v", file.Type, file.Machine)
			}
			testSymbols(t, file)
			testSegments(t, file)
			testNotes(t, file, notesOf(t, path), arch.nop, arch.arguments)

			for _, s := range file.Sections {
				if strings.HasPrefix(s.Name, ".note.gnu") || s.Name == ".comment" {
					t.Errorf("section %s can differ from build to build", s.Name)
				}
			}
			raw, _ := os.ReadFile(path)
			if here, _ := os.Getwd(); bytes.Contains(raw, []byte(here)) {
				t.Errorf("the library has the path %s in it", here)
			}
		})
	}
}

// testSymbols: glibc's list is in "Replacing malloc" of its manual, without malloc_usable_size,
// which has nothing to replace where pointers stay as they are.
func testSymbols(t *testing.T, file *elf.File) {
	symbols := tracertest.Must(file.DynamicSymbols())(t)

	var defined []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			defined = append(defined, s.Name)
		} else if s.Name != "dl_iterate_phdr" || elf.ST_BIND(s.Info) != elf.STB_WEAK {
			t.Errorf("needs symbol %s", s.Name)
		}
	}
	for _, name := range []string{
		"malloc", "free", "calloc", "realloc",
		"aligned_alloc", "memalign", "posix_memalign", "pvalloc", "valloc",
		"reallocarray", "cfree", "free_sized", "free_aligned_sized",
		"_Znwm", "_Znam", "_ZdlPv", "_ZdaPv", "_ZdlPvm", "_ZdaPvm", "_ZnwmSt11align_val_t",
	} {
		if !slices.Contains(defined, name) {
			t.Errorf("does not define %s", name)
		}
	}

	needed, err := file.ImportedLibraries()
	if err != nil || len(needed) > 0 {
		t.Errorf("needs libraries %q, error %v", needed, err)
	}
}

// testSegments: each page of the file is mapped once, and one writable segment maps the semaphores.
func testSegments(t *testing.T, file *elf.File) {
	const largestPage = 64 << 10
	writable, mappedTo := 0, uint64(0)
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD {
			page := min(p.Align, largestPage)
			if p.Off < mappedTo || p.Off%page != 0 {
				t.Errorf("segment at offset %#x shares a page with the one before", p.Off)
			}
			mappedTo = (p.Off + p.Filesz + page - 1) / page * page
		}
		switch {
		case p.Type == elf.PT_LOAD && p.Flags&elf.PF_W != 0:
			writable++
		case p.Type == elf.PT_TLS && (p.Memsz > 64 || p.Filesz > 0):
			t.Errorf("%d bytes of thread-local memory, %d of them set", p.Memsz, p.Filesz)
		case p.Type == elf.PT_GNU_STACK && p.Flags&elf.PF_X != 0:
			t.Error("asks for an executable stack")
		case p.Type == elf.PT_GNU_RELRO:
			t.Error("has RELRO")
		}
	}
	if writable != 1 {
		t.Errorf("%d writable segments", writable)
	}
}

func testNotes(t *testing.T, file *elf.File, notes []note, nop []byte, arguments string) {
	text := file.Section(".text")
	code := tracertest.Must(text.Data())(t)

	counts := make(map[string]int)
	semaphores := make(map[string]uint64)
	addresses := make(map[uint64]bool)
	for _, n := range notes {
		name := n.provider + ":" + n.name
		if !bytes.HasPrefix(code[n.address-text.Addr:], nop) {
			t.Errorf("%s at %#x is no nop", name, n.address)
		}
		if first, seen := semaphores[name]; seen && first != n.semaphore {
			t.Errorf("%s has two semaphores", name)
		}
		counts[name]++
		semaphores[name] = n.semaphore
		addresses[n.address] = true
		if name == "otel_memory:alloc" && n.arguments != arguments {
			t.Errorf("arguments %q, want %q", n.arguments, arguments)
		}
	}

	for name, want := range map[string]int{
		"otel_memory:alloc": 1, "otel_memory:free": 1, "allocscope:start": 1,
		"allocscope:hold": Markers, "allocscope:interval": Markers,
	} {
		if counts[name] != want {
			t.Errorf("%d notes of %s, want %d", counts[name], name, want)
		}
	}
	distinct := make(map[uint64]bool)
	for _, s := range semaphores {
		distinct[s] = true
	}
	if len(addresses) != len(notes) || len(distinct) != len(counts) {
		t.Errorf("notes share addresses or semaphores: %+v", notes)
	}
}

// TestWrite makes a file of its own for each session.
func TestWrite(t *testing.T) {
	folder := t.TempDir()
	first := tracertest.Must(Write(folder))(t)
	defer first.Close()
	second := tracertest.Must(Write(folder))(t)
	defer second.Close()
	if first.Name() == second.Name() {
		t.Errorf("wrote %s twice", first.Name())
	}
	text, err := os.ReadFile(first.Name())
	if err != nil || !bytes.Equal(text, Library()) {
		t.Errorf("%s is not the library, error %v", first.Name(), err)
	}
	info, err := os.Stat(first.Name())
	if err != nil || info.Mode().Perm() != 0o555 {
		t.Errorf("%v, error %v", info, err)
	}
	if held, err := first.Stat(); err != nil || !os.SameFile(held, info) {
		t.Errorf("another file is open: %v", err)
	}
	if _, err := first.Write([]byte{0}); !errors.Is(err, unix.EBADF) {
		t.Errorf("the file can be written: %v", err)
	}

	for _, folder := range []string{"relative", folder + "/a b", folder + "/a:b", folder + "/none"} {
		if file, err := Write(folder); err == nil {
			t.Errorf("wrote %s", file.Name())
		}
	}
}

// TestWriteNoexec: a library cannot be preloaded from a file system that forbids to execute.
func TestWriteNoexec(t *testing.T) {
	folder := t.TempDir()
	tracertest.NoError(t, unix.Mount("tmpfs", folder, "tmpfs", unix.MS_NOEXEC, ""))
	defer unix.Unmount(folder, 0)

	_, err := Write(folder)
	if err == nil || !strings.Contains(err.Error(), "noexec") {
		t.Errorf("error %v", err)
	}
	if left, _ := filepath.Glob(folder + "/*"); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}
