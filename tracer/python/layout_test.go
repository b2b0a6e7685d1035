package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// gdb prints the layouts compiled into the interpreters that have debug information.
func TestLayouts(t *testing.T) {
	compared := 0
	for name, command := range tracertest.Interpreters(t) {
		path, _ := library(t, command)
		if path == "" || !strings.Contains(runTool(t, "readelf", "-SW", path), ".debug_info") {
			continue
		}

		compared++

		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _ := startReady(t, command[0], "-c", waitPy)
			found := mustFind(t, p)
			l, ok := staticLayouts[found.CodeLayout.Minor]

			if !ok {
				const member = "&((struct pyruntimestate *)0)->interpreters.head"
				head := gdbOffsets(t, path, []string{member})[0]
				read, err := readDebugOffsets(p, found.Kernel.Interpreters-head)
				if err != nil {
					t.Fatal(err)
				}

				l = *read
			}

			var expressions []string
			var offsets []uint16
			for expression, offset := range expressionsOf(l) {
				expressions, offsets = append(expressions, expression), append(offsets, offset)
			}

			for i, want := range gdbOffsets(t, path, expressions) {
				if uint64(offsets[i]) != want {
					t.Errorf("%s is %d, not %d", expressions[i], want, offsets[i])
				}
			}
		})
	}

	if compared == 0 {
		t.Fatal("no interpreter has debug information (pyenv's have)")
	}
}

// gdbOffsets returns the values of C expressions that are offsets.
func gdbOffsets(t testing.TB, file string, expressions []string) (values []uint64) {
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
			t.Fatalf("gdb prints %q", out)
		}

		values = append(values, value)
	}

	if len(values) != len(expressions) {
		t.Fatalf("gdb prints %q for %q", out, expressions)
	}

	return values
}

// expressionsOf returns the offsets of a layout by their C expressions.
func expressionsOf(l layout) map[string]uint16 {
	k, c := l.kernel, l.code
	offsets := make(map[string]uint16)
	members := func(structure string, of map[string]uint16) {
		for member, offset := range of {
			offsets["&(("+structure+" *)0)->"+member] = offset
		}
	}

	offsets["sizeof(PyASCIIObject)"] = c.ASCIIData
	offsets["sizeof(PyCompactUnicodeObject)"] = c.CompactData
	members("PyASCIIObject", map[string]uint16{"length": c.UnicodeLength, "state": c.UnicodeState})
	members("PyBytesObject",
		map[string]uint16{"ob_base.ob_size": c.BytesSize, "ob_sval": c.BytesData})
	members("struct pyruntimestate", map[string]uint16{"interpreters.head": l.interpretersHead})
	members("PyInterpreterState", map[string]uint16{"next": k.InterpreterNext})

	members("PyThreadState", map[string]uint16{
		"next": k.ThreadNext, "interp": l.interp, "thread_id": k.ThreadKey,
	})

	members("PyCodeObject", map[string]uint16{
		"co_filename": c.Filename, "co_name": c.Name, "co_firstlineno": c.Firstlineno,
	})

	switch {
	case c.Minor < 10:
		members("PyCodeObject", map[string]uint16{"co_lnotab": c.Linetable})
	default:
		members("PyCodeObject", map[string]uint16{"co_linetable": c.Linetable})
	}

	if k.Style == bpf.PythonObjects {
		members("PyInterpreterState", map[string]uint16{"tstate_head": k.InterpreterThreads})
		members("PyThreadState", map[string]uint16{"frame": k.ThreadFrame})
		members("struct _frame", map[string]uint16{
			"f_code": k.FrameCode, "f_back": k.FrameBack, "f_lasti": k.FrameInstruction,
		})

		return offsets
	}

	members("PyInterpreterState", map[string]uint16{"threads.head": k.InterpreterThreads})
	members("PyThreadState", map[string]uint16{"native_thread_id": l.nativeThreadID})
	members("PyCodeObject", map[string]uint16{
		"co_qualname": c.Qualname, "_co_firsttraceable": c.FirstTraceable,
		"co_code_adaptive": k.CodeBytes,
	})

	members("struct _PyInterpreterFrame", map[string]uint16{"previous": k.FrameBack})
	if c.Minor >= 13 {
		members("PyThreadState", map[string]uint16{"current_frame": k.ThreadFrame})
		members("struct _PyInterpreterFrame", map[string]uint16{
			"f_executable": k.FrameCode, "instr_ptr": k.FrameInstruction, "owner": k.FrameEntry,
		})

		return offsets
	}

	members("PyThreadState", map[string]uint16{"cframe": k.ThreadFrame})
	members("_PyCFrame", map[string]uint16{"current_frame": k.ThreadFrameIndirect})
	members("struct _PyInterpreterFrame", map[string]uint16{
		"f_code": k.FrameCode, "prev_instr": k.FrameInstruction,
		map[int]string{11: "is_entry", 12: "owner"}[c.Minor]: k.FrameEntry,
	})

	return offsets
}

// startedInterpreter is memory with an interpreter at 0x1000 and its thread state at 0x2000.
func startedInterpreter(l layout) (fakeMemory, bpf.Python) {
	m := fakeMemory{0x800, make([]byte, 0x2000)}
	k := l.kernelOffsets(0x800)
	m.put(k.Interpreters, 0x1000)
	m.put(0x1000+uint64(k.InterpreterThreads), 0x2000)
	m.put(0x2000+uint64(l.interp), 0x1000)

	return m, k
}

func TestLayoutCheck(t *testing.T) {
	for minor, l := range staticLayouts {
		_, k := startedInterpreter(l)
		thread, interp := 0x1000+uint64(k.InterpreterThreads), 0x2000+uint64(l.interp)
		for name, c := range map[string]struct {
			address, value uint64
			ok             bool
		}{
			"started":                  {interp, 0x1000, true},
			"no interpreter":           {k.Interpreters, 0, true},
			"no thread":                {thread, 0, true},
			"thread of something else": {interp, 0x1008, false},
			"unmapped thread":          {thread, 1 << 63, false},
			"unmapped interpreter":     {k.Interpreters, 1<<64 - 8, false},
		} {
			t.Run(fmt.Sprintf("3.%d %s", minor, name), func(t *testing.T) {
				m, k := startedInterpreter(l)
				m.put(c.address, c.value)
				if err := l.check(m, k); (err == nil) != c.ok ||
					err != nil && !errors.Is(err, ErrUnsupported) {
					t.Errorf("%v", err)
				}
			})
		}
	}

	l := staticLayouts[11]
	t.Run("thread that ends meanwhile", func(t *testing.T) {
		m, k := startedInterpreter(l)
		m.put(0x2000+uint64(l.interp), 0)
		reads := 0

		err := l.check(memoryFunc(func(address uint64, buffer []byte) error {
			if reads++; reads == 7 {
				m.put(0x2000+uint64(l.interp), 0x1000)
			}

			return m.ReadMemory(address, buffer)
		}), k)

		if err != nil || reads != 9 {
			t.Errorf("%v after %d reads", err, reads)
		}
	})

	t.Run("unreadable memory", func(t *testing.T) {
		if err := l.check(fakeMemory{}, l.kernelOffsets(0x800)); err == nil ||
			errors.Is(err, ErrUnsupported) {
			t.Errorf("%v", err)
		}
	})
}

// debugTable returns a struct _Py_DebugOffsets of plausible offsets, all different. From 3.14 on it
// is the table of a free-threaded build, which has all of them.
func debugTable(minor int) []byte {
	table := make([]byte, debugTableSize)
	copy(table, debugCookie)
	put := func(position, value int) {
		binary.LittleEndian.PutUint64(table[position:], uint64(value))
	}
	put(8, 3<<24|minor<<16|4<<8|0xf0)

	at := debugOffsetsOf[minor]
	fields := reflect.ValueOf(at)
	for i := range fields.NumField() {
		if position := int(fields.Field(i).Int()); position != 0 {
			put(position, 800+8*i)
		}
	}

	put(at.obType, 8)
	if at.coTlbc != 0 {
		put(16, 1)
		put(at.obType, 24)
	}
	put(at.codeName, 120)
	put(at.codeQualname, 128)
	put(at.codeLinetable, 136)

	return table
}

// with returns the layout of the table after a change.
func with(minor, position int, value uint64) (*layout, error) {
	table := debugTable(minor)
	binary.LittleEndian.PutUint64(table[position:], value)
	return parseDebugOffsets(table)
}

func TestParseDebugOffsets(t *testing.T) {
	constrained := []string{"obType", "codeName", "codeQualname", "codeLinetable"}
	for minor, at := range debugOffsetsOf {
		l, err := parseDebugOffsets(debugTable(minor))
		if err != nil {
			t.Fatal(err)
		}

		fields := reflect.ValueOf(at)
		for i := range fields.NumField() {
			name, position := fields.Type().Field(i).Name, int(fields.Field(i).Int())
			if position == 0 { // this version has none
				continue
			}
			changed, err := with(minor, position, 8000)
			if strings.Contains(fmt.Sprint(constrained), name) {
				if !errors.Is(err, ErrUnsupported) {
					t.Errorf("3.%d: %s may be anything", minor, name)
				}
			} else if err != nil || *changed == *l {
				t.Errorf("3.%d: %s changes nothing, %v", minor, name, err)
			}

			for _, value := range []uint64{
				maxOffset + 1, 1 << 16, 1<<16 + 8, 1 << 32, 1<<64 - 1, 1<<64 - 8, 13,
			} {
				if (name == "frameOwner" || name == "bytesObSval") && value == 13 {
					continue // bytes, which need no alignment
				}

				_, err := with(minor, position, value)
				want := fmt.Sprintf("offset %d at %d of the table", value, position)
				if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
					t.Errorf("3.%d: %s %#x: %v", minor, name, value, err)
				}
			}
		}

		if l, err := with(minor, at.coCodeAdaptive, 8); !errors.Is(err, ErrUnsupported) {
			t.Errorf("3.%d: bytecode at 8: %+v, %v", minor, l, err)
		}
	}
}

func TestReadDebugOffsets(t *testing.T) {
	for _, size := range []int{0, 8, debugHeaderSize - 1, debugHeaderSize, debugTableSize - 1} {
		l, err := readDebugOffsets(fakeMemory{0x1000, debugTable(13)[:size]}, 0x1000)
		if l != nil || err == nil || errors.Is(err, ErrUnsupported) {
			t.Errorf("of %d bytes: %+v, %v", size, l, err)
		}
	}

	zeros := fakeMemory{0x1000, make([]byte, debugHeaderSize)}
	if l, err := readDebugOffsets(zeros, 0x1000); l != nil || err != nil {
		t.Errorf("without a cookie: %+v, %v", l, err)
	}
}

// FuzzDebugOffsets: whatever the table, an offset that is believed is in bounds, and so are values
// computed from it.
func FuzzDebugOffsets(f *testing.F) {
	for minor := range debugOffsetsOf {
		f.Add(debugTable(minor))
		f.Add(bytes.Repeat([]byte{0xff}, debugTableSize))
		f.Add(debugTable(minor)[:100])
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		table := make([]byte, debugTableSize)
		copy(table, data)
		l, err := parseDebugOffsets(table)
		if err != nil {
			if l != nil || !errors.Is(err, ErrUnsupported) {
				t.Errorf("%+v, %v", l, err)
			}

			return
		}

		for _, of := range []any{l.kernel, l.code} {
			fields := reflect.ValueOf(of)
			for i := range fields.NumField() {
				name, field := fields.Type().Field(i).Name, fields.Field(i)
				if field.Kind() == reflect.Uint16 && field.Uint() > maxOffset+16 &&
					name != "ThreadFrameIndirect" {
					t.Errorf("%s is %d", name, field.Uint())
				}
			}
		}

		if l.code.Minor != 13 && l.code.Minor != 14 || l.code.FirstTraceable > l.kernel.CodeBytes {
			t.Errorf("%+v", l)
		}

		if _, err := ReadCode(fakeMemory{0, data}, 0, l.code); err == nil && len(data) < 100 {
			t.Errorf("a code object in %d bytes", len(data))
		}
	})
}
