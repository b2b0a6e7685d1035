package probe

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
	"github.com/allocscope/allocscope/tracer/tracertest"

	"github.com/allocscope/allocscope/tracer/hostile"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// start starts a program that prints "ready", and returns its process and mappings then.
func start(t *testing.T, command *exec.Cmd) (*process.Process, []process.Mapping) {
	t.Helper()
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	return open(t, target.PID())
}

func open(t *testing.T, pid int) (*process.Process, []process.Mapping) {
	t.Helper()
	p := tracertest.Must(process.Open(pid))(t)
	t.Cleanup(func() { p.Close() })
	maps := tracertest.Must(p.Maps())(t)
	return p, maps
}

func assemble(t testing.TB, text string) []byte {
	t.Helper()
	dir := t.TempDir()
	source, object := filepath.Join(dir, "code.s"), filepath.Join(dir, "code.o")
	tracertest.NoError(t, os.WriteFile(source, []byte(text+"\n"), 0o600))
	tracertest.Run(t, "as", "--64", "-o", object, source)
	file := tracertest.Must(elf.Open(object))(t)
	defer file.Close()
	return tracertest.Must(file.Section(".text").Data())(t)
}

// A line of objdump's listing.
type line struct {
	address            uint64
	mnemonic, operands string
}

func disassemble(t testing.TB, path string) (listing []line) {
	t.Helper()
	for text := range strings.Lines(tracertest.Run(t, "objdump", "-d", "--no-show-raw-insn",
		path)) {
		address, instruction, ok := strings.Cut(text, ":\t")
		at, err := strconv.ParseUint(strings.TrimSpace(address), 16, 64)
		if !ok || err != nil {
			continue
		}
		instruction, _, _ = strings.Cut(strings.TrimSpace(instruction), "#")
		mnemonic, operands, _ := strings.Cut(instruction, " ")
		listing = append(listing, line{at, mnemonic, strings.TrimSpace(operands)})
	}
	if len(listing) == 0 {
		t.Fatalf("objdump lists nothing of %s", path)
	}
	return listing
}

func find(listing []line, address uint64) (int, bool) {
	i := sort.Search(len(listing), func(i int) bool { return listing[i].address >= address })
	return i, i < len(listing) && listing[i].address == address
}

// openBoth opens a file with debug/elf, the oracle, and with our package.
func openBoth(t testing.TB, path string) (*elf.File, *symbol.File) {
	t.Helper()
	f := tracertest.Must(hostile.Open(nil, path, 0, 0))(t)
	t.Cleanup(func() { f.Close() })
	file := tracertest.Must(elf.NewFile(f))(t)
	image := tracertest.Must(symbol.Open(f, path))(t)
	return file, image
}

func fileOffset(t testing.TB, file *elf.File, address uint64) uint64 {
	t.Helper()
	for _, p := range file.Progs {
		if p.Type == elf.PT_LOAD && address >= p.Vaddr && address < p.Vaddr+p.Filesz {
			return address - p.Vaddr + p.Off
		}
	}
	t.Fatalf("address %#x is in no segment", address)
	return 0
}

func addresses(t testing.TB, path string, flags ...string) map[string]uint64 {
	t.Helper()
	return tracertest.Symbols(t, path, "TtW", flags...)
}

func cLibrary(t testing.TB) string {
	t.Helper()
	for text := range strings.Lines(tracertest.Run(t, "ldd", "/bin/cat")) {
		if _, path, ok := strings.Cut(text, "libc.so.6 => "); ok {
			path, _, _ = strings.Cut(path, " ")
			return tracertest.Must(filepath.EvalSymlinks(path))(t)
		}
	}

	t.Fatal("cat needs no C library")
	return ""
}
