package python

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// layoutC prints the layout as the headers of the interpreter have it.
const layoutC = `
#include <Python.h>
#include <stddef.h>
#include <stdio.h>
#if PY_VERSION_HEX < 0x030a0000
#define TABLE co_lnotab
#else
#define TABLE co_linetable
#endif
#if PY_VERSION_HEX < 0x030b0000
#define QUALIFIED 0
#define TRACEABLE 0
_Static_assert(offsetof(PyCodeObject, TABLE) == offsetof(PyCodeObject, co_filename) + 16, "in a row");
#else
#define QUALIFIED offsetof(PyCodeObject, co_qualname)
#define TRACEABLE offsetof(PyCodeObject, _co_firsttraceable)
_Static_assert(QUALIFIED == offsetof(PyCodeObject, co_filename) + 16, "in a row");
_Static_assert(offsetof(PyCodeObject, TABLE) == offsetof(PyCodeObject, co_filename) + 24, "in a row");
#endif
_Static_assert(offsetof(PyCodeObject, co_name) == offsetof(PyCodeObject, co_filename) + 8, "in a row");
int main(void)
{
	printf("{\"FileName\": %zu, \"Name\": %zu, \"QualifiedName\": %zu, \"FirstLine\": %zu, \"LineTable\": %zu,"
	       "\"FirstTraceable\": %zu, \"BytesSize\": %zu, \"BytesData\": %zu, \"TextLength\": %zu,"
	       "\"TextState\": %zu, \"TextASCII\": %zu, \"TextCompact\": %zu}",
	       offsetof(PyCodeObject, co_filename), offsetof(PyCodeObject, co_name), (size_t)QUALIFIED,
	       offsetof(PyCodeObject, co_firstlineno), offsetof(PyCodeObject, TABLE), (size_t)TRACEABLE,
	       offsetof(PyVarObject, ob_size), offsetof(PyBytesObject, ob_sval), offsetof(PyASCIIObject, length),
	       offsetof(PyASCIIObject, state), sizeof(PyASCIIObject), sizeof(PyCompactUnicodeObject));
}
`

// headerLayout is the layout of an interpreter by its headers.
func headerLayout(t *testing.T, command string, minor int) CodeLayout {
	t.Helper()
	headers := filepath.Join(filepath.Dir(command), "..", "include", fmt.Sprintf("python3.%d", minor))
	out := runTool(t, buildC(t, layoutC, "-I", headers))
	layout := CodeLayout{Minor: minor}
	if err := json.Unmarshal([]byte(out), &layout); err != nil {
		t.Fatal(err)
	}
	return layout
}

// A shownCode is what an interpreter says of a code object: testdata/objects.py.
type shownCode struct {
	Address    uint64
	Name, File *[]rune // nil: not a plain str
	First      int
	Traceable  *int32
	Lines      []int
}

func TestReadCodeReadsWhatTheInterpreterSays(t *testing.T) {
	eachPython(t, func(t *testing.T, command string, minor int) {
		layout := headerLayout(t, command, minor)
		target := tracertest.StartCommand(t, exec.Command(command, "testdata/objects.py"))
		shown := target.Await("ready")
		memory := openProcess(t, target.PID())
		for _, line := range shown {
			var want shownCode
			if err := json.Unmarshal([]byte(line), &want); err != nil {
				t.Fatal(err)
			}
			mustReadCode(t, memory, layout, want)
		}
		if len(shown) < 3000 {
			t.Errorf("only %d code objects were compared", len(shown))
		}
		t.Logf("%d code objects", len(shown))
	})
}

func mustReadCode(t *testing.T, m Memory, layout CodeLayout, want shownCode) {
	t.Helper()
	code, err := ReadCode(m, want.Address, layout)
	if want.Name == nil || want.File == nil {
		if err == nil || !strings.HasSuffix(err.Error(), "not a compact string") {
			t.Errorf("code object with a name of a subclass of str is %+v, %v", code, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if code.Function != shownText(*want.Name) || code.File != shownText(*want.File) || code.FirstLine != want.First {
		t.Errorf("%q in %q from line %d, want %q in %q from line %d",
			code.Function, code.File, code.FirstLine, string(*want.Name), string(*want.File), want.First)
	}
	for i, line := range want.Lines {
		if offset := int32(max(-1, 2*i-2)); code.Line(offset) != max(0, line) {
			t.Errorf("%s: line %d at offset %d, want %d", code.Function, code.Line(offset), offset, line)
		}
	}
	if want.Traceable == nil {
		if code.Internal(-2) {
			t.Errorf("%s: a frame is internal in a version that has none", code.Function)
		}
	} else if code.Internal(*want.Traceable) || !code.Internal(*want.Traceable-2) {
		t.Errorf("%s: frames are not internal up to the RESUME at %d", code.Function, *want.Traceable)
	}
}

// shownText is how a text is to be shown: what cannot be printed as '?', and cut at 4096 bytes.
func shownText(points []rune) string {
	var text strings.Builder
	for _, r := range points {
		shown := process.Printable(string(r))
		if r >= 0xd800 && r < 0xe000 {
			shown = "?"
		}
		if text.Len()+len(shown) > 4096 {
			return text.String() + "…"
		}
		text.WriteString(shown)
	}
	return text.String()
}
