package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// bareFlags make a program without a C library.
var bareFlags = []string{"-nostdlib", "-static", "-ffreestanding", "-fno-stack-protector"}

// small is a program of a few kilobytes.
func small(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile(tracertest.Build(t, "bare.c", bareFlags...))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// image32 is the same as a 32-bit program.
func image32(t testing.TB) []byte {
	t.Helper()
	raw, err := os.ReadFile(tracertest.Build(t, "bare.c", append(bareFlags, "-m32")...))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// headers opens a file as one whose functions are to be probed.
func headers(t testing.TB, path string) *File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	m, err := Open(f, path)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// addresses is what nm says of the functions of a file.
func addresses(t testing.TB, path string, flags ...string) map[string]uint64 {
	t.Helper()
	found := make(map[string]uint64)
	for text := range strings.Lines(run(t, "", "nm", append(flags, path)...)) {
		var address uint64
		var kind, name string
		if n, _ := fmt.Sscanf(text, "%x %s %s", &address, &kind, &name); n == 3 && strings.Contains("TtW", kind) {
			name, _, _ = strings.Cut(name, "@")
			found[name] = address
		}
	}
	return found
}

func TestTheFunctionsOfTheCLibraryAreThoseThatNmSays(t *testing.T) {
	path := libc
	versions := make(map[string]int)
	for line := range strings.Lines(run(t, "", "nm", "-D", "--defined-only", path)) {
		if fields := strings.Fields(line); len(fields) == 3 {
			name, _, _ := strings.Cut(fields[2], "@")
			versions[name]++
		}
	}
	m := headers(t, path)
	want := addresses(t, path, "-D", "--defined-only")
	names := make(map[string]bool)
	for name := range want {
		names[name] = true
	}
	got, err := m.Functions(Dynamic, names)
	if err != nil || len(got) < 2000 {
		t.Fatalf("%d functions, %v", len(got), err)
	}
	for name, address := range got {
		if versions[name] == 1 && address != want[name] {
			t.Errorf("%s at %#x, nm says %#x", name, address, want[name])
		}
	}
}

// Two files of one program may each have a function of that name for themselves.
func TestALocalNameIsTakenOnlyIfThereIsOne(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.s": ".globl one, both\n.type one,@function\none: ret\n.type two,@function\ntwo: ret\n.type both,@function\nboth: ret\n",
		"b.s": ".type two,@function\ntwo: ret\n.type three,@function\nthree: ret\n.type both,@function\nboth: ret\n.globl _start\n_start: ret\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	program := filepath.Join(dir, "program")
	run(t, "", "gcc", "-nostdlib", "-static", "-o", program, filepath.Join(dir, "a.s"), filepath.Join(dir, "b.s"))
	m := headers(t, program)
	got, err := m.Functions(Static, map[string]bool{"one": true, "two": true, "three": true, "both": true, "none": true})
	if err != nil {
		t.Fatal(err)
	}
	want := addresses(t, program, "--extern-only")
	if len(got) != 3 || got["one"] != want["one"] || got["both"] != want["both"] || got["three"] == 0 {
		t.Errorf("found %#x, nm says of the global ones %#x", got, want)
	}
}

func TestWhatIsNo64BitELFFileIsRefused(t *testing.T) {
	good := small(t)
	damaged := func(at int, b byte) []byte {
		raw := slices.Clone(good)
		raw[at] = b
		return raw
	}
	for name, raw := range map[string][]byte{
		"empty": nil, "text": []byte(strings.Repeat("text ", 100)), "header alone": good[:64], "cut": good[:63], "script": []byte("#!/bin/sh\n"),
		"big-endian": damaged(elf.EI_DATA, 2), "segments of another size": damaged(54, 32),
	} {
		if m, err := newFile(bytes.NewReader(raw), int64(len(raw))); err == nil {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if _, err := newFile(bytes.NewReader(image32(t)), 1<<20); !errors.Is(err, Err32Bit) {
		t.Errorf("32-bit: %v, want %v", err, Err32Bit)
	}
}

// sectionHeader gives the place of the symbol table's section header in the file, and that of its names.
func sectionHeader(t *testing.T, raw []byte) (symbols, names int) {
	t.Helper()
	at := int(binary.LittleEndian.Uint64(raw[40:]))
	for header := at; header+64 <= len(raw); header += 64 {
		if elf.SectionType(binary.LittleEndian.Uint32(raw[header+4:])) == elf.SHT_SYMTAB {
			return header, at + 64*int(binary.LittleEndian.Uint32(raw[header+40:]))
		}
	}
	t.Fatal("no symbol table")
	return 0, 0
}

func TestTablesThatWouldFillTheMemoryAreRefused(t *testing.T) {
	good := small(t)
	symbols, names := sectionHeader(t, good)
	path := filepath.Join(t.TempDir(), "sparse")
	for name, damage := range map[string]func(raw []byte){
		"many symbols":            func(raw []byte) { binary.LittleEndian.PutUint64(raw[symbols+32:], 1<<40) },
		"many names":              func(raw []byte) { binary.LittleEndian.PutUint64(raw[names+32:], maxNames+1) },
		"compressed symbols":      func(raw []byte) { raw[symbols+9] |= 8 },
		"compressed names":        func(raw []byte) { raw[names+9] |= 8 },
		"names in no section":     func(raw []byte) { binary.LittleEndian.PutUint32(raw[symbols+40:], 1<<31) },
		"symbols of another size": func(raw []byte) { raw[symbols+56] = 1 },
		"symbols before the file": func(raw []byte) { binary.LittleEndian.PutUint64(raw[symbols+24:], 1<<63) },
	} {
		raw := slices.Clone(good)
		damage(raw)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 1<<40); err != nil { // it costs its owner nothing
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := Open(file, path)
		if err != nil {
			t.Fatal(err)
		}
		if found, err := m.Functions(Static, map[string]bool{"map_here": true}); err == nil {
			t.Errorf("%s: %#x", name, found)
		}
		file.Close()
	}
}

func TestANameBehindTheNamesIsNone(t *testing.T) {
	raw := small(t)
	header, _ := sectionHeader(t, raw)
	symbols := binary.LittleEndian.Uint64(raw[header+24:])
	for size := binary.LittleEndian.Uint64(raw[header+32:]); size > 0; size -= elf.Sym64Size {
		binary.LittleEndian.PutUint32(raw[symbols+size-elf.Sym64Size:], 1<<32-1)
	}
	m, err := newFile(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	if found, err := m.Functions(Static, map[string]bool{"": true, "map_here": true}); err != nil || found["map_here"] != 0 {
		t.Errorf("%#x, %v", found, err)
	}
}

func TestCodeEndsWithItsSegmentAndItsFile(t *testing.T) {
	m := &File{image: &image{r: bytes.NewReader(make([]byte, 100)), loads: []elf.Prog64{
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R), Vaddr: 0x1000, Filesz: 100},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Off: 10, Vaddr: 0x2000, Filesz: 50},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Off: 50, Vaddr: 0x3000, Filesz: 1000},
		{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_X), Off: 1 << 63, Vaddr: 0x5000, Filesz: 1 << 63},
	}}}
	for address, want := range map[uint64][2]uint64{
		0x1000: {}, 0x1fff: {}, 0x2000: {50, 10}, 0x2031: {1, 59}, 0x2032: {}, 0x3000: {50, 50}, 0x3031: {1, 99}, 0x3032: {}, 0x5000: {}, 1<<64 - 1: {},
	} {
		code, offset, err := m.Code(address, 64)
		if got := [2]uint64{uint64(len(code)), offset}; got != want || (err == nil) != (len(code) > 0) {
			t.Errorf("%#x: %d bytes at %d, %v; want %d", address, len(code), offset, err, want)
		}
	}
}

// Whatever the file: no panic, memory bounded by its size, and code that lies in it.
func FuzzFunctions(f *testing.F) {
	whole := small(f)
	for _, n := range []int{0, 63, 64, 120, 400, len(whole) / 2, len(whole)} {
		f.Add(whole[:n])
	}
	f.Add(image32(f))
	names := map[string]bool{"map_here": true, "move_break": true, "run": true}
	f.Fuzz(func(t *testing.T, raw []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if m, err := newFile(bytes.NewReader(raw), int64(len(raw))); err == nil {
			for _, kind := range []Table{Static, Dynamic} {
				found, _ := m.Functions(kind, names)
				for name, address := range found {
					mustLieInside(t, raw, m, name, address)
				}
			}
		}
		runtime.ReadMemStats(&after)
		if allocated, limit := after.TotalAlloc-before.TotalAlloc, uint64(32<<20+64*len(raw)); allocated > limit {
			t.Errorf("%d bytes allocated for a file of %d bytes, more than %d", allocated, len(raw), limit)
		}
	})
}

func mustLieInside(t *testing.T, raw []byte, m *File, name string, address uint64) {
	t.Helper()
	code, offset, err := m.Code(address, 64)
	if err == nil && offset+uint64(len(code)) > uint64(len(raw)) {
		t.Errorf("%s has its code at %#x of a file of %d bytes", name, offset, len(raw))
	}
}
