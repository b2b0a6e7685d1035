package python

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// library returns the shared library of an interpreter and its home, empty if it has none.
func library(t testing.TB, command []string) (path, home string) {
	t.Helper()
	const print = "import sys, sysconfig; v = sysconfig.get_config_var; " +
		"print(v('LIBDIR') + '/' + v('LDLIBRARY')); print(sys.base_prefix)"
	out := tracertest.Run(t, command[0], append(command[1:], "-c", print)...)
	path, home, _ = strings.Cut(strings.TrimSpace(out), "\n")
	if len(command) > 1 || filepath.Ext(path) != ".so" {
		return "", ""
	}

	return path, home
}

// waitPy is a Python program that prints its version and "ready", and waits.
const waitPy = "import sys; print('%d.%d' % sys.version_info[:2]); print('ready', flush=True); " +
	"sys.stdin.read()"

// startReady runs a program that prints "ready". It returns the lines before, too.
func startReady(t testing.TB, command ...string) (p *process.Process, printed []string) {
	t.Helper()
	target := tracertest.StartCommand(t, exec.Command(command[0], command[1:]...))
	printed = target.Await("ready")
	return openProcess(t, target.PID()), printed
}

func openProcess(t testing.TB, pid int) *process.Process {
	t.Helper()
	p := tracertest.Must(process.Open(pid))(t)
	t.Cleanup(func() { p.Close() })
	return p
}

// find is Find on the current mappings.
func find(t testing.TB, p *process.Process) (*Interpreter, error) {
	t.Helper()
	maps := tracertest.Must(p.Maps())(t)

	return Find(p, maps)
}

func mustFind(t testing.TB, p *process.Process) *Interpreter {
	t.Helper()
	found, err := find(t, p)
	if err != nil || found == nil {
		t.Fatalf("Find = %+v, %v", found, err)
	}

	return found
}

// mustFindIn checks that a process runs the Python that it has printed the version of, from a file.
func mustFindIn(t testing.TB, p *process.Process, printed []string, file string) {
	t.Helper()
	found := mustFind(t, p)
	if found.Version != printed[0] || file != "" && filepath.Base(found.Module.Path) != file {
		t.Errorf("Python %s in %s, want %s in %s", found.Version, found.Module.Path, printed[0],
			file)
	}
}

// buildC compiles a C program.
func buildC(t testing.TB, source string, flags ...string) string {
	t.Helper()
	return build(t, "source.c", source, append([]string{"-O2"}, flags...)...)
}

func build(t testing.TB, name, source string, flags ...string) string {
	t.Helper()
	input := filepath.Join(t.TempDir(), name)
	tracertest.NoError(t, os.WriteFile(input, []byte(source), 0o600))

	tracertest.Run(t, "gcc", append([]string{"-o", input + ".out", input}, flags...)...)
	return input + ".out"
}

// A fakeMemory is memory from an address on.
type fakeMemory struct {
	start uint64
	bytes []byte
}

func (m fakeMemory) ReadMemory(address uint64, buffer []byte) error {
	if address < m.start || address-m.start > uint64(len(m.bytes)) ||
		copy(buffer, m.bytes[address-m.start:]) < len(buffer) {
		return fmt.Errorf("no memory at %#x", address)
	}
	return nil
}

func (m fakeMemory) put(address, value uint64) {
	binary.LittleEndian.PutUint64(m.bytes[address-m.start:], value)
}

// A memoryFunc is memory made of its ReadMemory.
type memoryFunc func(address uint64, buffer []byte) error

func (f memoryFunc) ReadMemory(address uint64, buffer []byte) error { return f(address, buffer) }
