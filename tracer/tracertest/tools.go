package tracertest

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Main is the TestMain of a package: it runs the tests, and removes the programs that they built.
func Main(m *testing.M) {
	code := m.Run()
	Cleanup()
	os.Exit(code)
}

// Run runs a tool, such as objdump, and returns its output.
func Run(t testing.TB, tool string, arguments ...string) string {
	t.Helper()
	var complaints bytes.Buffer
	command := exec.Command(tool, arguments...)
	command.Stderr = &complaints
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", tool, strings.Join(arguments, " "), err, output, &complaints)
	}
	return string(output)
}

// Strip returns a copy of a program or library without .symtab.
func Strip(t testing.TB, path string) string {
	t.Helper()
	stripped := filepath.Join(t.TempDir(), filepath.Base(path))
	Run(t, "strip", "-o", stripped, path)
	return stripped
}

// Symbols returns the addresses of the symbols of a file, as nm prints them with some flags. kinds
// are the letters of nm that count; empty: all do.
func Symbols(t testing.TB, path, kinds string, flags ...string) map[string]uint64 {
	t.Helper()
	found := make(map[string]uint64)
	for line := range strings.Lines(Run(t, "nm", append(flags, path)...)) {
		var address uint64
		var kind, name string
		n, _ := fmt.Sscanf(line, "%x %s %s", &address, &kind, &name)
		if n == 3 && (kinds == "" || strings.Contains(kinds, kind)) {
			name, _, _ = strings.Cut(name, "@")
			found[name] = address
		}
	}
	return found
}

// OpenFiles counts the descriptors of this process.
func OpenFiles(t testing.TB) int {
	t.Helper()
	return len(Must(os.ReadDir("/proc/self/fd"))(t))
}

// Allocated returns the bytes that a call allocates, whether it frees them or not.
func Allocated(call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	call()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// BPFFiles returns the IDs of the BPF programs that a process has open, and of its links with their
// programs. It reads /proc: a descriptor of a link would keep the probes of another test attached.
func BPFFiles(t testing.TB, pid int) (programs []uint32, links map[uint32]uint32) {
	t.Helper()
	links = make(map[uint32]uint32)
	for _, file := range Must(filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid)))(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // closed meanwhile
		}

		var program, id uint32
		isLink := false
		for line := range strings.Lines(string(text)) {
			if n, _ := fmt.Sscanf(line, "link_id: %d", &id); n == 1 {
				isLink = true
			}
			_, _ = fmt.Sscanf(line, "prog_id: %d", &program)
		}

		switch {
		case isLink:
			links[id] = program
		case program != 0:
			programs = append(programs, program)
		}
	}
	return programs, links
}
