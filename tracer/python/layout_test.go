package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// known returns a version of CPython.
func known(minor int) *cpython.Version {
	v, err := cpython.Find(minor)
	if err != nil {
		panic(err)
	}
	return v
}

// publishing returns the known versions that publish their offsets.
func publishing() (minors []int) {
	for minor := 13; ; minor++ {
		if _, err := cpython.Find(minor); err != nil {
			return minors
		}
		minors = append(minors, minor)
	}
}

// startedInterpreter is memory with an interpreter at 0x1000 and its thread state at 0x2000.
func startedInterpreter(l *layout) (fakeMemory, bpf.Python) {
	m := fakeMemory{0x800, make([]byte, 0x2000)}
	k := l.kernelOffsets(0x800)
	m.put(k.Interpreters, 0x1000)
	m.put(0x1000+uint64(k.InterpreterThreads), 0x2000)
	m.put(0x2000+l.frames.ThreadInterp, 0x1000)

	return m, k
}

func TestLayoutCheck(t *testing.T) {
	for minor := 8; minor <= 12; minor++ {
		l := layoutOf(known(minor))
		_, k := startedInterpreter(l)
		thread, interp := 0x1000+uint64(k.InterpreterThreads), 0x2000+l.frames.ThreadInterp
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

	l := layoutOf(known(11))
	t.Run("thread that ends meanwhile", func(t *testing.T) {
		m, k := startedInterpreter(l)
		m.put(0x2000+l.frames.ThreadInterp, 0)
		reads := 0

		err := l.check(memoryFunc(func(address uint64, buffer []byte) error {
			if reads++; reads == 7 {
				m.put(0x2000+l.frames.ThreadInterp, 0x1000)
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
	table := make([]byte, cpython.DebugOffsetsSize)
	copy(table, cpython.DebugCookie)
	put := func(position uint64, value int) {
		binary.LittleEndian.PutUint64(table[position:], uint64(value))
	}
	put(8, 3<<24|minor<<16|4<<8|0xf0)

	at := known(minor).DebugOffsets
	fields := reflect.ValueOf(*at)
	for i := range fields.NumField() {
		if position := fields.Field(i).Uint(); position != cpython.Absent {
			put(position, 800+8*i)
		}
	}

	put(at.PyobjectObType, cpython.ObType)
	if at.CodeObjectCoTlbc != cpython.Absent {
		put(cpython.DebugFreeThreaded, 1)
		put(at.PyobjectObType, cpython.FreeThreadedObType)
	}
	put(at.CodeObjectName, 120)
	put(at.CodeObjectQualname, 128)
	put(at.CodeObjectLinetable, 136)

	return table
}

// with returns the layout of the table after a change.
func with(minor int, position, value uint64) (*layout, error) {
	table := debugTable(minor)
	binary.LittleEndian.PutUint64(table[position:], value)
	return parseDebugOffsets(table)
}

func TestParseDebugOffsets(t *testing.T) {
	constrained := []string{
		"PyobjectObType", "CodeObjectName", "CodeObjectQualname", "CodeObjectLinetable",
	}
	for _, minor := range publishing() {
		at := known(minor).DebugOffsets
		forObjects := make(map[uint64]bool) // positions that are compared, not read
		for _, f := range known(minor).Fixed() {
			forObjects[f.Position] = f.Position != at.InterpreterFrameOwner
		}
		l := tracertest.Must(parseDebugOffsets(debugTable(minor)))(t)

		fields := reflect.ValueOf(*at)
		for i := range fields.NumField() {
			name, position := fields.Type().Field(i).Name, fields.Field(i).Uint()
			if position == cpython.Absent || forObjects[position] {
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
				if (name == "InterpreterFrameOwner" || name == "BytesObjectObSval") && value == 13 {
					continue // bytes, which need no alignment
				}

				_, err := with(minor, position, value)
				want := fmt.Sprintf("offset %d at %d of the table", value, position)
				if !errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), want) {
					t.Errorf("3.%d: %s %#x: %v", minor, name, value, err)
				}
			}
		}

		if l, err := with(minor, at.CodeObjectCoCodeAdaptive, 8); !errors.Is(err, ErrUnsupported) {
			t.Errorf("3.%d: bytecode at 8: %+v, %v", minor, l, err)
		}
	}
}

func TestReadDebugOffsets(t *testing.T) {
	for _, size := range []int{
		0, 8, cpython.DebugHeaderSize - 1, cpython.DebugHeaderSize, cpython.DebugOffsetsSize - 1,
	} {
		l, err := readDebugOffsets(fakeMemory{0x1000, debugTable(13)[:size]}, 0x1000)
		if l != nil || err == nil || errors.Is(err, ErrUnsupported) {
			t.Errorf("of %d bytes: %+v, %v", size, l, err)
		}
	}

	zeros := fakeMemory{0x1000, make([]byte, cpython.DebugHeaderSize)}
	if l, err := readDebugOffsets(zeros, 0x1000); l != nil || err != nil {
		t.Errorf("without a cookie: %+v, %v", l, err)
	}
}

// FuzzDebugOffsets: whatever the table, an offset that is believed is in bounds, and so are values
// computed from it.
func FuzzDebugOffsets(f *testing.F) {
	for _, minor := range publishing() {
		f.Add(debugTable(minor))
		f.Add(bytes.Repeat([]byte{0xff}, cpython.DebugOffsetsSize))
		f.Add(debugTable(minor)[:100])
	}

	f.Fuzz(func(t *testing.T, data []byte) {
		table := make([]byte, cpython.DebugOffsetsSize)
		copy(table, data)
		l, err := parseDebugOffsets(table)
		if err != nil {
			if l != nil || !errors.Is(err, ErrUnsupported) {
				t.Errorf("%+v, %v", l, err)
			}

			return
		}

		for _, of := range []any{l.frames, l.code} {
			fields := reflect.ValueOf(of)
			for i := range fields.NumField() {
				name, field := fields.Type().Field(i).Name, fields.Field(i)
				if field.CanUint() && field.Uint() > maxOffset+16 && field.Uint() != cpython.Absent {
					t.Errorf("%s is %d", name, field.Uint())
				}
			}
		}

		if l.version.DebugOffsets == nil || l.code.FirstTraceable > l.frames.CodeAdaptive {
			t.Errorf("%+v", l)
		}

		if _, err := ReadCode(fakeMemory{0, data}, 0, l.code); err == nil && len(data) < 100 {
			t.Errorf("a code object in %d bytes", len(data))
		}
	})
}
