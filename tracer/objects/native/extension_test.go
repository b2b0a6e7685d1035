package native

import (
	"encoding/binary"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// startPython runs a script with Debian's interpreter. It returns the values that the script
// prints, by name.
func startPython(
	t testing.TB, script string, arguments ...string,
) (pid int, values map[string]uint64) {
	t.Helper()
	command := exec.Command("/usr/bin/python3", append([]string{"-c", script}, arguments...)...)
	target := tracertest.StartCommand(t, command)
	values = make(map[string]uint64)
	for _, line := range target.Await("ready") {
		var name string
		var value uint64
		tracertest.Must(fmt.Sscan(line, &name, &value))(t)
		values[name] = value
	}
	return target.PID(), values
}

// findValue names the static variables that have a value among their words.
func (s *Statics) findValue(t testing.TB, value uint64) (found []string) {
	t.Helper()
	for _, span := range s.Spans() {
		content := make([]byte, span.Len())
		tracertest.NoError(t, s.process.ReadMemory(span.Start, content))
		for at := -span.Start & 7; at+8 <= span.Len(); at += 8 {
			if binary.LittleEndian.Uint64(content[at:]) != value {
				continue
			}
			file, symbol, offset, ok := s.Find(span.Start + at)
			if !ok {
				t.Fatalf("%#x is in Spans, but Find names nothing", span.Start+at)
			}
			name := fmt.Sprintf("%s: %s+%#x", filepath.Base(file), symbol, offset)
			if s.IsInterpreter(span.Start + at) {
				name += " of the interpreter"
			}
			found = append(found, name)
		}
	}
	return found
}

// isOnlyUser reports whether a variable is the only one of those found, but for the interpreter's
// own. Its free lists have stale entries, which may refer to anything.
func isOnlyUser(found []string, want string) bool {
	others := 0
	for _, name := range found {
		if name != want && !strings.HasSuffix(name, " of the interpreter") {
			others++
		}
	}
	return slices.Contains(found, want) && others == 0
}

func TestStaticsOfPython(t *testing.T) {
	const script = `
import ctypes, decimal, gc, sys
library = ctypes.PyDLL(sys.argv[1])
library.keep.restype = ctypes.py_object
library.keep.argtypes = [ctypes.py_object]
library.enter.argtypes = [ctypes.c_int, ctypes.py_object]
for i in range(1000):
    kept = library.keep(object())
entered = object()
library.enter(17, entered)
print("kept", id(kept))
print("entered", id(entered))
print("tuple", id(decimal.DecimalTuple))
print("dict", id(gc.get_referents(list.__dict__)[0]))
print("ready", flush=True)
input()
`
	library := tracertest.Build(t, "keeper.c", "-shared", "-fPIC")
	symbols := tracertest.Symbols(t, library, "")

	t.Run("library with symbols", func(t *testing.T) {
		pid, values := startPython(t, script, library)
		s := openStatics(t, pid)
		for name, want := range map[string]string{
			"kept":    "libkeeper.so: kept+0x0",
			"entered": "libkeeper.so: table+0x118",
			"dict":    "python3.11: PyList_Type+0x108 of the interpreter", // tp_dict
		} {
			if found := s.findValue(t, values[name]); !isOnlyUser(found, want) {
				t.Errorf("%s is in %q, want %q", name, found, want)
			}
		}

		// A static variable of Debian's _decimal, which has no symbols.
		found := s.findValue(t, values["tuple"])
		if len(found) == 0 || !strings.HasPrefix(found[0], "_decimal.") {
			t.Errorf("%q", found)
		}
	})

	t.Run("stripped library", func(t *testing.T) {
		pid, values := startPython(t, script, tracertest.Strip(t, library))
		s := openStatics(t, pid)
		for name, at := range map[string]uint64{
			"kept": symbols["kept"], "entered": symbols["table"] + 17*16 + 8,
		} {
			want := fmt.Sprintf("libkeeper.so: +%#x", at)
			if found := s.findValue(t, values[name]); !isOnlyUser(found, want) {
				t.Errorf("%s is in %q, want %q", name, found, want)
			}
		}
	})

	t.Run("PyTorch", func(t *testing.T) {
		pid, values := startPython(t, `
import torch
print("tensor", id(torch.Tensor))
print("ready", flush=True)
input()
`)
		found := openStatics(t, pid).findValue(t, values["tensor"])
		if !slices.Contains(found, "libtorch_python.so.1.13.0: THPVariableClass+0x0") {
			t.Errorf("%q", found)
		}
	})
}
