package python

import (
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
)

// shownOffsets gives what gdb says of expressions whose values are offsets.
func shownOffsets(t testing.TB, file string, expressions []string) (values []uint64) {
	t.Helper()
	arguments := []string{"-batch", "-nx", "-ex", "set max-value-size unlimited"}
	for _, e := range expressions {
		arguments = append(arguments, "-ex", "output (long)("+e+")", "-ex", `echo \n`)
	}
	out, err := exec.Command("gdb", append(arguments, file)...).Output()
	if err != nil {
		t.Fatalf("gdb: %v (apt-get install gdb)", err)
	}
	for line := range strings.Lines(string(out)) {
		value, err := strconv.ParseUint(strings.TrimSpace(line), 10, 64)
		if err != nil {
			t.Fatalf("gdb says %q", out)
		}
		values = append(values, value)
	}
	if len(values) != len(expressions) {
		t.Fatalf("gdb says %q of %q", out, expressions)
	}
	return values
}

// offsetsOf lists offsets of a layout with what they are in C.
func offsetsOf(l layout) map[string]uint16 {
	const object, text = "((PyCodeObject *)0)->", "((PyASCIIObject *)0)->"
	k, c := l.kernel, l.code
	offsets := map[string]uint16{
		"&((struct pyruntimestate *)0)->interpreters.head": l.interpreters,
		"&((PyInterpreterState *)0)->next":                 k.InterpreterNext,
		"&((PyThreadState *)0)->next":                      k.ThreadNext,
		"&((PyThreadState *)0)->interp":                    l.threadInterpreter,
		"&((PyThreadState *)0)->thread_id":                 k.ThreadKey,
		"&" + object + "co_filename":                       c.FileName,
		"&" + object + "co_name":                           c.Name,
		"&" + object + "co_firstlineno":                    c.FirstLine,
		"&((PyBytesObject *)0)->ob_base.ob_size":           c.BytesSize,
		"&((PyBytesObject *)0)->ob_sval":                   c.BytesData,
		"&" + text + "length":                              c.TextLength,
		"&" + text + "state":                               c.TextState,
		"sizeof(PyASCIIObject)":                            c.TextASCII,
		"sizeof(PyCompactUnicodeObject)":                   c.TextCompact,
	}
	if k.Style == bpf.KernelPythonStylePYTHON_OBJECTS {
		const frame = "&((struct _frame *)0)->"
		offsets["&((PyInterpreterState *)0)->tstate_head"] = k.InterpreterThreads
		offsets["&((PyThreadState *)0)->frame"] = k.ThreadFrame
		offsets[frame+"f_code"], offsets[frame+"f_back"], offsets[frame+"f_lasti"] = k.FrameCode, k.FrameBack, k.FrameInstruction
		return offsets
	}
	const frame = "&((struct _PyInterpreterFrame *)0)->"
	offsets["&((PyInterpreterState *)0)->threads.head"] = k.InterpreterThreads
	offsets["&((PyThreadState *)0)->native_thread_id"] = l.nativeThread
	offsets[frame+"previous"] = k.FrameBack
	offsets["&"+object+"co_qualname"] = c.QualifiedName
	offsets["&"+object+"co_linetable"] = c.LineTable
	offsets["&"+object+"_co_firsttraceable"] = c.FirstTraceable
	offsets["&"+object+"co_code_adaptive"] = k.CodeBytes
	if c.Minor >= 13 {
		offsets["&((PyThreadState *)0)->current_frame"] = k.ThreadFrame
		offsets[frame+"f_executable"], offsets[frame+"instr_ptr"], offsets[frame+"owner"] = k.FrameCode, k.FrameInstruction, k.FrameEntry
		return offsets
	}
	offsets["&((PyThreadState *)0)->cframe"] = k.ThreadFrame
	offsets["&((_PyCFrame *)0)->current_frame"] = k.ThreadFrameIndirect
	offsets[frame+"f_code"], offsets[frame+"prev_instr"] = k.FrameCode, k.FrameInstruction
	offsets[frame+map[int]string{11: "is_entry", 12: "owner"}[c.Minor]] = k.FrameEntry
	return offsets
}

func TestLayoutsAreThoseOfTheDebugger(t *testing.T) {
	known := 0
	for name, command := range interpreterCommands(t) {
		path, _ := library(t, command)
		if path == "" || !strings.Contains(runTool(t, "readelf", "-SW", path), ".debug_info") {
			continue
		}
		known++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := startFrames(t, exec.Command(command[0], "-c", frames(t)))
			found, err := find(t, p)
			if err != nil {
				t.Fatal(err)
			}
			l, ok := staticLayouts[found.Code.Minor]
			if !ok {
				runtime := shownOffsets(t, path, []string{"&((struct pyruntimestate *)0)->interpreters.head"})[0]
				read, err := readDebugLayout(p, found.Kernel.Interpreters-runtime)
				if err != nil {
					t.Fatal(err)
				}
				l = *read
			}
			var expressions []string
			var offsets []uint16
			for expression, offset := range offsetsOf(l) {
				expressions, offsets = append(expressions, expression), append(offsets, offset)
			}
			for i, want := range shownOffsets(t, path, expressions) {
				if uint64(offsets[i]) != want {
					t.Errorf("%s is %d, not %d", expressions[i], want, offsets[i])
				}
			}
		})
	}
	if known == 0 {
		t.Fatal("no interpreter has debug information (pyenv's have)")
	}
}

// A started interpreter at 0x1000, its thread at 0x2000.
func startedInterpreter(l layout) (fakeMemory, bpf.KernelPython) {
	m := fakeMemory{0x800, make([]byte, 0x2000)}
	k := l.at(0x800)
	m.put(k.Interpreters, 0x1000)
	m.put(0x1000+uint64(k.InterpreterThreads), 0x2000)
	m.put(0x2000+uint64(l.threadInterpreter), 0x1000)
	return m, k
}

func TestAnInterpreterIsCheckedByWhatItsThreadsPointTo(t *testing.T) {
	for minor, l := range staticLayouts {
		for name, c := range map[string]struct {
			change func(m fakeMemory, k bpf.KernelPython)
			fine   bool
		}{
			"is in order":                      {func(fakeMemory, bpf.KernelPython) {}, true},
			"has no interpreter yet":           {func(m fakeMemory, k bpf.KernelPython) { m.put(k.Interpreters, 0) }, true},
			"has no thread yet":                {func(m fakeMemory, k bpf.KernelPython) { m.put(0x1000+uint64(k.InterpreterThreads), 0) }, true},
			"has a thread of something else":   {func(m fakeMemory, _ bpf.KernelPython) { m.put(0x2000+uint64(l.threadInterpreter), 0x1008) }, false},
			"has a thread that is not there":   {func(m fakeMemory, k bpf.KernelPython) { m.put(0x1000+uint64(k.InterpreterThreads), 1<<63) }, false},
			"has an interpreter at no address": {func(m fakeMemory, k bpf.KernelPython) { m.put(k.Interpreters, 1<<64-8) }, false},
		} {
			t.Run(fmt.Sprintf("3.%d %s", minor, name), func(t *testing.T) {
				m, k := startedInterpreter(l)
				c.change(m, k)
				if err := l.check(m, k); (err == nil) != c.fine || err != nil && !errors.Is(err, ErrUnsupported) {
					t.Errorf("%v", err)
				}
			})
		}
	}
}

// A thread that ends while it is looked at is not the interpreter's fault.
func TestAnInterpreterIsCheckedAgainWhenItHasChanged(t *testing.T) {
	l := staticLayouts[11]
	m, k := startedInterpreter(l)
	m.put(0x2000+uint64(l.threadInterpreter), 0)
	reads := 0
	err := l.check(memoryFunc(func(address uint64, buffer []byte) error {
		if reads++; reads == 7 {
			m.put(0x2000+uint64(l.threadInterpreter), 0x1000)
		}
		return m.ReadMemory(address, buffer)
	}), k)
	if err != nil || reads != 9 {
		t.Errorf("%v after %d reads", err, reads)
	}
}

func TestMemoryThatCannotBeReadIsAnErrorOfItsOwn(t *testing.T) {
	l := staticLayouts[11]
	if err := l.check(fakeMemory{}, l.at(0x800)); err == nil || errors.Is(err, ErrUnsupported) {
		t.Errorf("%v", err)
	}
}

type memoryFunc func(address uint64, buffer []byte) error

func (f memoryFunc) ReadMemory(address uint64, buffer []byte) error { return f(address, buffer) }
