package interpreter

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/python"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// known returns a version of CPython.
func known(minor int) *cpython.Version {
	v, err := cpython.Find(minor)
	if err != nil {
		panic(err)
	}
	return v
}

// A described object is a line of testdata/state.py.
type described struct {
	Kind string
	ID   uint64
	IDs  []uint64

	Name, Type, File, Module, Function string
	Repr, Points, Qualname             []rune
	Hex                                uint32
	Found                              []uint64
	First, Len                         int
	Names                              []string
	Flags                              uint64

	Line, Defaults              int
	Args, KeywordOnly, FreeVars []string

	Frames  int
	Values  map[string]uint64
	Stacked uint64
	Frame   *described
	Count   int64

	Enabled            bool
	Thresholds, Counts [3]int
	Lived              int64
}

// A pythonTarget is a running testdata/state.py.
type pythonTarget struct {
	*Runtime
	target  *tracertest.Target
	process *process.Process
	said    map[string][]described // by kind
}

// start runs testdata/state.py in an interpreter and opens that.
func start(t testing.TB, command []string) *pythonTarget {
	t.Helper()
	source, err := os.ReadFile("testdata/state.py")
	tracertest.NoError(t, err)
	run := exec.Command(command[0], append(command[1:], "-c", string(source))...)
	p := &pythonTarget{target: tracertest.StartCommand(t, run)}
	p.said = parse(t, p.target.Await("ready"))

	var interpreter *python.Interpreter
	p.process, interpreter = findPython(t, p.target)
	if p.Runtime, err = Open(p.process, interpreter); err != nil {
		t.Fatal(err)
	}
	return p
}

// findPython opens a target and finds its interpreter.
func findPython(t testing.TB, target *tracertest.Target) (*process.Process, *python.Interpreter) {
	t.Helper()
	p := tracertest.Must(process.Open(target.PID()))(t)
	t.Cleanup(func() { p.Close() })
	maps := tracertest.Must(p.Maps())(t)
	interpreter, err := python.Find(p, maps)
	if err != nil || interpreter == nil {
		t.Fatalf("find the interpreter: %+v, %v", interpreter, err)
	}
	return p, interpreter
}

func parse(t testing.TB, lines []string) map[string][]described {
	t.Helper()
	said := make(map[string][]described)
	for _, line := range lines {
		var d described
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		said[d.Kind] = append(said[d.Kind], d)
	}
	return said
}

// each calls check with each object of a kind; there has to be one.
func (p *pythonTarget) each(t *testing.T, kind string, check func(d described)) {
	t.Helper()
	if len(p.said[kind]) == 0 {
		t.Errorf("the program has not described any %s", kind)
	}
	for _, d := range p.said[kind] {
		check(d)
	}
}

// words reads words of the target.
func (p *pythonTarget) words(t *testing.T, address uint64, count int) []uint64 {
	t.Helper()
	memory := make([]byte, 8*count)
	tracertest.NoError(t, p.process.ReadMemory(address, memory))
	words := make([]uint64, count)
	for i := range words {
		words[i] = mem.Word(memory, uint64(8*i))
	}
	return words
}

func (p *pythonTarget) word(t *testing.T, address uint64) uint64 {
	t.Helper()
	return p.words(t, address, 1)[0]
}

// printed is how a text of the target is shown, at most limit characters of it.
func printed(text []rune, limit int) string {
	if len(text) > limit {
		return growth.Printable(string(text[:limit])) + "…"
	}
	return growth.Printable(string(text))
}

// A fakeMemory is memory of bytes from an address on.
type fakeMemory struct {
	start uint64
	bytes []byte
	read  *int // bytes that were read, all together
}

func (m fakeMemory) ReadMemory(address uint64, buffer []byte) error {
	*m.read += len(buffer)
	at := address - m.start
	if address < m.start || at > uint64(len(m.bytes)) ||
		copy(buffer, m.bytes[at:]) < len(buffer) {
		return errUnreadable
	}
	return nil
}

// A repeated memory is memory that has the same words everywhere.
type repeated struct {
	word []byte
	read *int
}

func (m repeated) ReadMemory(_ uint64, buffer []byte) error {
	*m.read += len(buffer)
	copy(buffer, bytes.Repeat(m.word, len(buffer)/8+1))
	return nil
}
