package probe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A library that debug/elf would turn into gigabytes: 65535 names for each of its version definitions, one inside the other.
func TestAProgramWithHostileVersionsIsReadAtOnce(t *testing.T) {
	program := filepath.Join(t.TempDir(), "program")
	code, err := os.ReadFile(tracertest.Build(t, "semantics.c", "-pthread", "-rdynamic"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, code, 0o700); err != nil {
		t.Fatal(err)
	}
	definitions := filepath.Join(t.TempDir(), "definitions")
	one := append([]byte{1, 0, 0, 0, 2, 0, 0xff, 0xff, 0, 0, 0, 0, 20, 0, 0, 0, 28, 0, 0, 0}, make([]byte, 8)...) // Elf64_Verdef, Verdaux
	if err := os.WriteFile(definitions, bytes.Repeat(one, 20_000), 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, "binutils", "objcopy", "--add-section", ".hostile="+definitions, program)
	makeVersions(t, program)
	target := tracertest.StartCommand(t, exec.Command(program))
	target.Await("ready")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p, maps := opened(t, target.PID())
	if _, err := Resolve(p, maps); err != nil {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if allocated := after.TotalAlloc - before.TotalAlloc; allocated > 64<<20 {
		t.Errorf("%d bytes allocated", allocated)
	}
}

// makeVersions turns the section .hostile into one of version definitions.
func makeVersions(t *testing.T, path string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	at := slices.IndexFunc(file.Sections, func(s *elf.Section) bool { return s.Name == ".hostile" })
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	headers := binary.LittleEndian.Uint64(raw[40:])
	binary.LittleEndian.PutUint32(raw[headers+64*uint64(at)+4:], uint32(elf.SHT_GNU_VERDEF))
	if err := os.WriteFile(path, raw, 0o700); err != nil {
		t.Fatal(err)
	}
}
