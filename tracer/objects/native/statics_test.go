package native

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

func openProcess(t testing.TB, pid int) (*process.Process, []process.Mapping) {
	t.Helper()
	p := tracertest.Must(process.Open(pid))(t)
	t.Cleanup(func() { p.Close() })
	maps := tracertest.Must(p.Maps())(t)
	return p, maps
}

func openStatics(t testing.TB, pid int) *Statics {
	t.Helper()
	s := tracertest.Must(Open(openProcess(t, pid)))(t)
	t.Cleanup(func() { s.Close() })
	return s
}

// variable is a line that testdata/statics.c prints: an address and its variable.
type variable struct {
	file, name      string
	offset, address uint64
}

func parseVariable(t testing.TB, line string) (v variable) {
	t.Helper()
	tracertest.Must(fmt.Sscan(line, &v.file, &v.name, &v.offset, &v.address))(t)
	return v
}

// mustFind compares the answers of Find with the program's output. exported are the names that a
// stripped file keeps; symbols are the symbols of its unstripped build, nil: it is not stripped.
func (v variable) mustFind(t testing.TB, s *Statics, symbols map[string]uint64, exported string) {
	t.Helper()
	file, symbol, offset, ok := s.Find(v.address)
	inSpans := s.Spans().Contains(mem.Span{Start: v.address, End: v.address + 1})
	if v.file == "-" {
		if ok || inSpans {
			t.Errorf("%s at %#x is %s: %s+%#x", v.name, v.address, file, symbol, offset)
		}
		return
	}

	name, at := v.name, v.offset
	if symbols != nil && !strings.Contains(exported, name) {
		name, at = "", symbols[name]+at
	}
	isSame := ok && file == v.file && symbol == name && offset == at
	if !isSame || !inSpans || s.IsInterpreter(v.address) {
		t.Errorf("%#x is %s: %s+%#x, %t; want %s: %s+%#x", v.address, file, symbol, offset, ok,
			v.file, name, at)
	}
}

// mustFindAll compares the answers about a program that is not stripped with its output.
func mustFindAll(t *testing.T, target *tracertest.Target) {
	t.Helper()
	lines := target.Await("ready")
	s := openStatics(t, target.PID())
	for _, line := range lines {
		parseVariable(t, line).mustFind(t, s, nil, "")
	}
}

func TestStatics(t *testing.T) {
	const library = "-DLIBRARY -shared -fPIC"
	const exported = "last_value first_name"
	for _, c := range []struct{ name, program, library string }{
		{"position-independent", "-pie", library},
		{"fixed addresses", "-no-pie", library + " -Wl,-z,now"},
		{".bss only", "", library + " -DBSS_ONLY -Wl,-z,now,-z,relro"},
		{"no read-only relocations", "", library + " -Wl,-z,norelro"},
		{"large pages", "", library + " -Wl,-z,max-page-size=0x200000"},
		{"static", "-static", ""},
		{"static, position-independent", "-static-pie", ""},
	} {
		program := tracertest.Build(t, "statics.c", strings.Fields(c.program)...)
		libraries := []string{}
		if c.library != "" {
			libraries = []string{tracertest.Build(t, "statics.c", strings.Fields(c.library)...)}
		}

		t.Run(c.name, func(t *testing.T) {
			mustFindAll(t, tracertest.Start(t, program, libraries...))
		})

		t.Run(c.name+", stripped", func(t *testing.T) {
			var stripped []string
			symbols := map[string]map[string]uint64{}
			for _, file := range append([]string{program}, libraries...) {
				stripped = append(stripped, tracertest.Strip(t, file))
				symbols[stripped[len(stripped)-1]] = tracertest.Symbols(t, file, "")
			}

			target := tracertest.Start(t, stripped[0], stripped[1:]...)
			lines := target.Await("ready")
			s := openStatics(t, target.PID())
			for _, line := range lines {
				v := parseVariable(t, line)
				names := exported
				if v.file == stripped[0] { // a program exports nothing
					names = ""
				}
				v.mustFind(t, s, symbols[v.file], names)
			}
		})
	}

	// Without randomization, the heap begins where .bss ends.
	t.Run("heap behind .bss", func(t *testing.T) {
		path := tracertest.Build(t, "statics.c", "-no-pie")
		mustFindAll(t, tracertest.StartCommand(t, exec.Command("setarch", "-R", path)))
	})

	t.Run("deleted file", func(t *testing.T) {
		content := tracertest.Must(os.ReadFile(tracertest.Build(t, "statics.c")))(t)
		path := filepath.Join(t.TempDir(), "program")
		tracertest.NoError(t, os.WriteFile(path, content, 0o700))
		target := tracertest.Start(t, path)
		lines := target.Await("ready")
		os.Remove(path)
		s := openStatics(t, target.PID())
		for _, line := range lines {
			v := parseVariable(t, line)
			if v.file == path {
				v.file += " (deleted)"
			}
			v.mustFind(t, s, nil, "")
		}
	})
}
