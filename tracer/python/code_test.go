package python

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// eachPython runs a test on pyenv's interpreters.
func eachPython(t *testing.T, test func(t *testing.T, command string, minor int)) {
	tested := 0
	for name, command := range tracertest.Interpreters(t) {
		var minor int
		if n, _ := fmt.Sscanf(name, "pyenv-3.%d.", &minor); n == 1 {
			tested++

			t.Run(name, func(t *testing.T) { test(t, command[0], minor) })
		}
	}

	if tested == 0 {
		t.Error("no interpreter to compare with (install Python with pyenv)")
	}
}

// lineAnswers are the answers of an interpreter for one line table: testdata/lines.py.
type lineAnswers struct {
	Code    string
	First   int
	Table   string
	Answers [][2]int // instructions and their line, from offset -1 on
}

// The interpreter answers by PyCode_Addr2Line.
func TestLine(t *testing.T) {
	eachPython(t, func(t *testing.T, command string, minor int) {
		script := exec.Command(command, "-W", "ignore", "testdata/lines.py")
		script.Stderr = os.Stderr
		output := tracertest.Must(script.Output())(t)

		codes, instructions := 0, 0
		for answers := json.NewDecoder(bytes.NewReader(output)); answers.More() && !t.Failed(); codes++ {
			var want lineAnswers
			tracertest.NoError(t, answers.Decode(&want))

			instructions += checkLines(t, want, minor)
		}

		if codes < 4000 || instructions < 500000 {
			t.Errorf("only %d code objects with %d instructions were compared", codes, instructions)
		}

		t.Logf("%d code objects, %d instructions", codes, instructions)
	})
}

// checkLines compares Line with all answers for one table, and returns their number.
func checkLines(t *testing.T, want lineAnswers, minor int) (instructions int) {
	t.Helper()
	table := tracertest.Must(hex.DecodeString(want.Table))(t)

	code := &Code{FirstLine: want.First, lineForm: known(minor).LineForm, linetable: table}
	offset := int32(-1)
	for _, run := range want.Answers {
		for range run[0] {
			// No file has a line below 0.
			if line := code.Line(offset); line != max(0, run[1]) {
				t.Fatalf("%s: line %d at offset %d, want %d", want.Code, line, offset, run[1])
			}

			offset = (offset + 2) &^ 1
			instructions++
		}
	}

	return instructions
}

func TestLineDamaged(t *testing.T) {
	const noColumns, none = 0x80 | locationNoColumns<<3, 0x80 | locationNone<<3
	const oneLine1 = 0x80 | locationOneLine1<<3
	for _, c := range []struct {
		name   string
		minor  int
		table  []byte
		offset int32
		want   int
	}{
		{"3.9: empty table", 9, []byte{}, 100, 7},
		{"3.9: half a pair at the end", 9, []byte{0, 1, 0}, 100, 8},
		{"3.9: line below 0", 9, []byte{0, 0x80}, 100, 0},
		{"3.10: empty table", 10, []byte{}, 0, 0},
		{"3.10: half a pair at the end", 10, []byte{2, 1, 2}, 2, 0},
		{"3.10: delta after a range without a line", 10, []byte{2, 1, 2, 0x80, 2, 1}, 4, 9},
		{"3.11: empty table", 11, []byte{}, 0, 0},
		{"3.11: instruction behind the table", 11, []byte{none, oneLine1, 0, 0}, 4, 0},
		{"3.11: truncated varint", 11, []byte{noColumns, 0x40 | 4}, 0, 9},
		{"3.11: varint ends with its entry", 11, []byte{noColumns, 0x40 | 4, oneLine1}, 0, 9},
		{
			"3.11: line beyond an int", 11,
			[]byte{noColumns, 0x7e, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f},
			0, 0,
		},
		{
			"3.11: endless varint", 11,
			append([]byte{noColumns, 0x42}, bytes.Repeat([]byte{0x40}, 1000)...), 0, 8,
		},
		// Each varint read to the end of the table would take an hour.
		{
			"3.11: endless varints", 11,
			bytes.Repeat([]byte{noColumns}, maxLinetableBytes), math.MaxInt32, 0,
		},
		{"table that was not read", 11, nil, 0, 0},
		{"table that was not read, before the first instruction", 11, nil, -1, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			code := &Code{FirstLine: 7, lineForm: known(c.minor).LineForm, linetable: c.table}
			if line := code.Line(c.offset); line != c.want {
				t.Errorf("line %d, want %d", line, c.want)
			}
		})
	}
}

// FuzzLine: whatever the table, a line is one that a file can have, and it does not depend on the
// entries behind it.
func FuzzLine(f *testing.F) {
	for minor := 8; minor <= 14; minor++ {
		f.Add(minor, 1, int32(4), []byte{2, 1, 4, 0x80, 6, 0xff, 0, 127})
		f.Add(minor, 100, int32(10),
			[]byte{0x80, 0, 0xd9, 1, 0, 0xe2, 0x43, 3, 0xf0, 2, 0, 1, 1, 0xf8})
		f.Add(minor, math.MaxInt32, int32(-1), []byte{})
		f.Add(minor, -5, int32(math.MaxInt32), bytes.Repeat([]byte{0xe8}, 300))
	}

	f.Fuzz(func(t *testing.T, minor, first int, offset int32, table []byte) {
		v, err := cpython.Find(minor)
		if err != nil {
			return
		}
		code := &Code{FirstLine: first, lineForm: v.LineForm, linetable: table}
		line := code.Line(offset)
		if line < 0 || line > math.MaxInt32 {
			t.Errorf("line %d", line)
		}

		code.linetable = append(bytes.Clone(table), 0xff)
		if longer := code.Line(offset); line != 0 && minor >= 10 && longer != line {
			t.Errorf("line %d, and %d where the table goes on", line, longer)
		}
	})
}

// A shownCode is an interpreter's output about a code object: testdata/objects.py.
type shownCode struct {
	Address    uint64
	Name, File *[]rune // nil: not a plain str
	First      int
	Traceable  *int32
	Lines      []int
}

func TestReadCode(t *testing.T) {
	eachPython(t, func(t *testing.T, command string, _ int) {
		target := tracertest.StartCommand(t, exec.Command(command, "testdata/objects.py"))
		shown := target.Await("ready")
		memory := openProcess(t, target.PID())
		layout := mustFind(t, memory).CodeLayout

		for _, line := range shown {
			var want shownCode
			tracertest.NoError(t, json.Unmarshal([]byte(line), &want))

			mustReadCode(t, memory, layout, want)
		}

		if len(shown) < 3000 {
			t.Errorf("only %d code objects were compared", len(shown))
		}

		t.Logf("%d code objects", len(shown))
	})
}

func mustReadCode(t *testing.T, m Memory, layout cpython.CodeLayout, want shownCode) {
	t.Helper()
	code, err := ReadCode(m, want.Address, layout)
	if want.Name == nil || want.File == nil {
		if err == nil || !strings.HasSuffix(err.Error(), "not a compact string") {
			t.Errorf("code object with a name of a subclass of str is %+v, %v", code, err)
		}

		return
	}

	tracertest.NoError(t, err)

	name, file := printable(*want.Name), printable(*want.File)
	if code.Function != name || code.File != file || code.FirstLine != want.First {
		t.Errorf("%q in %q from line %d, want %q in %q from line %d",
			code.Function, code.File, code.FirstLine, name, file, want.First)
	}

	for i, line := range want.Lines {
		if offset := int32(max(-1, 2*i-2)); code.Line(offset) != max(0, line) {
			t.Errorf("%s: line %d at offset %d, want %d", name, code.Line(offset), offset, line)
		}
	}

	if want.Traceable == nil {
		if code.IsIncomplete(-2) {
			t.Errorf("%s: an incomplete frame in a version that has none", name)
		}
	} else if code.IsIncomplete(*want.Traceable) || !code.IsIncomplete(*want.Traceable-2) {
		t.Errorf("%s: frames are not incomplete up to the RESUME at %d", name, *want.Traceable)
	}
}

// printable is how a str is to be shown: characters that cannot be printed as '?', truncated at
// 4096 bytes.
func printable(points []rune) string {
	var text strings.Builder
	for _, r := range points {
		shown := growth.Printable(string(r))
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

// objectLayout is the layout that codeObject uses: the one of 3.12.
var objectLayout = known(12).CodeLayout

const (
	codeAddress  = 0x1000
	nameAddress  = 0x1100
	fileAddress  = 0x1200
	tableAddress = 0x1300
)

// codeObject returns memory with a code object of 3.12 in it.
func codeObject() fakeMemory {
	m := fakeMemory{codeAddress, make([]byte, 0x400)}
	m.put(codeAddress+objectLayout.Filename, fileAddress)
	m.put(codeAddress+objectLayout.Name, nameAddress)
	m.put(codeAddress+objectLayout.Qualname, nameAddress)
	m.put(codeAddress+objectLayout.Firstlineno, 5)
	m.put(codeAddress+objectLayout.Linetable, tableAddress)
	m.put(codeAddress+objectLayout.FirstTraceable, 1)
	m.putText(nameAddress, 1<<2|1<<5|1<<6, objectLayout.ASCIIData, "name", 4)
	m.putText(fileAddress, 2<<2|1<<5, objectLayout.CompactData, "\x0d\x54\x4d\x52", 2)
	m.put(tableAddress+objectLayout.BytesSize, 3)
	copy(m.bytes[tableAddress-codeAddress+objectLayout.BytesData:], "\xd8\x00\x01")

	return m
}

// putText puts a str with the given bit fields, its characters at offset start.
func (m fakeMemory) putText(address, state uint64, start uint64, characters string, length uint64) {
	m.put(address+objectLayout.UnicodeLength, length)
	m.put(address+objectLayout.UnicodeState, state)
	copy(m.bytes[address-m.start+start:], characters)
}

func TestReadCodeDamaged(t *testing.T) {
	code, err := ReadCode(codeObject(), codeAddress, objectLayout)
	if err != nil || code.Function != "name" || code.File != "名前" || code.Line(0) != 6 ||
		!code.IsIncomplete(1) || code.IsIncomplete(2) {
		t.Fatalf("undamaged, the code object is %+v, %v", code, err)
	}

	const inCode = " of code object at 0x1000: "
	for _, c := range []struct {
		name           string
		address, value uint64
		want           string
	}{
		{
			"no name", codeAddress + 128, 0,
			"read function name" + inCode + "read str at 0x0: no memory",
		},
		{"unmapped file name", codeAddress + 112, 1 << 50, "read file name" + inCode + "read str"},
		{"the end", codeAddress + 128, 1<<64 - 1, "read str at 0xffffffffffffffff: no memory"},
		{"name of negative length", nameAddress + 16, 1<<64 - 1, "not a compact string"},
		{"endless name", nameAddress + 16, 1 << 62, "read characters of str at 0x1100: no memory"},
		{"name that is not compact", nameAddress + 32, 1<<2 | 1<<6, "not a compact string"},
		{"kind 0", nameAddress + 32, 1<<5 | 1<<6, "not a compact string"},
		{"kind 3", nameAddress + 32, 3<<2 | 1<<5, "not a compact string"},
		{"ASCII of kind 2", nameAddress + 32, 2<<2 | 1<<5 | 1<<6, "not a compact string"},
		{
			"no table", codeAddress + 136, 0,
			"read line table" + inCode + "read bytes at 0x0: no memory",
		},
		{
			"table of negative length", tableAddress + 16, 1 << 63,
			"read bytes at 0x1300: size -9223372036854775808",
		},
		{"long table", tableAddress + 16, maxLinetableBytes, "read bytes at 0x1300: no memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := codeObject()
			m.put(c.address, c.value)
			code, err := ReadCode(m, codeAddress, objectLayout)

			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the code object is %+v, %v, want %q", code, err, c.want)
			}
		})
	}

	t.Run("no object", func(t *testing.T) {
		_, err := ReadCode(codeObject(), 1, objectLayout)
		if err == nil || err.Error() != "read code object at 0x1: no memory at 0x1" {
			t.Error(err)
		}

		if _, err := ReadFingerprint(codeObject(), 1<<64-1, objectLayout); err == nil {
			t.Error("a fingerprint behind the address space was read")
		}
	})

	t.Run("line table too long", func(t *testing.T) {
		m := codeObject()
		m.put(tableAddress+objectLayout.BytesSize, maxLinetableBytes+1)
		code, err := ReadCode(m, codeAddress, objectLayout)

		if err != nil || code.Function != "name" || code.Line(0) != 0 || code.Line(-1) != 5 {
			t.Errorf("the code object is %+v, %v", code, err)
		}
	})

	t.Run("endless text", func(t *testing.T) {
		layout := objectLayout
		layout.BytesData = 0
		for word, least := range map[uint64]int{
			1<<40 | 4<<2 | 1<<5: 2 * 4 * maxTextBytes,   // a length, and kind 4
			1<<19 | 1<<2 | 1<<5: 2*maxTextBytes + 1<<19, // a length, and kind 1
		} {
			m := &countingMemory{Memory: memoryFunc(func(_ uint64, buffer []byte) error {
				for i := range buffer {
					buffer[i] = byte(word >> (i % 8 * 8))
				}

				return nil
			})}

			if _, err := ReadCode(m, codeAddress, layout); err != nil {
				t.Error(err)
			}

			if m.read < least || m.read > least+1<<10 {
				t.Errorf("%d bytes are read of words %#x, want little more than %d", m.read, word,
					least)
			}
		}
	})
}

// A countingMemory counts the bytes that are read.
type countingMemory struct {
	Memory
	read int
}

func (m *countingMemory) ReadMemory(address uint64, buffer []byte) error {
	m.read += len(buffer)
	return m.Memory.ReadMemory(address, buffer)
}

func TestReadText(t *testing.T) {
	m := codeObject()
	mustRead := func(name string, address uint64, layout cpython.CodeLayout, want string) {
		t.Helper()
		if text, err := readText(m, address, layout); err != nil || text != want {
			t.Errorf("%s is %q, %v, want %q", name, text, err, want)
		}
	}

	// Beyond Unicode, and negative as a rune.
	m.putText(nameAddress, 4<<2|1<<5, objectLayout.CompactData,
		"\x00\x00\x11\x00\xff\xff\xff\xffA\x00\x00\x00", 3)
	mustRead("text with invalid characters", nameAddress, objectLayout, "??A")

	// 3.14 has two forms of the bit fields; the bits behind them may have any value.
	layout := objectLayout
	layout.HasWideInterned = true
	for _, shift := range []int{2, 16} {
		for _, interned := range []uint64{0, 1, 3} {
			m = codeObject()
			behind := uint64(0xffffff80) << (shift - 2) & (1<<32 - 1)
			name := fmt.Sprintf("text interned as %d, fields from bit %d,", interned, shift)
			m.putText(nameAddress, interned|(1|1<<3|1<<4)<<shift|behind, layout.ASCIIData, "text",
				4)
			mustRead("ASCII "+name, nameAddress, layout, "text")
			m.putText(fileAddress, interned|(4|1<<3)<<shift|behind, layout.CompactData,
				"\x00\xf6\x01\x00", 1)
			mustRead("4-byte "+name, fileAddress, layout, "\U0001f600")
		}
	}
}

// withOffset returns the layout with one of its offsets changed.
func withOffset(l cpython.CodeLayout, field uint8, offset uint16) cpython.CodeLayout {
	offsets := []*uint64{
		&l.Filename, &l.Name, &l.Qualname, &l.Firstlineno, &l.Linetable, &l.FirstTraceable,
		&l.BytesSize, &l.BytesData, &l.UnicodeLength, &l.UnicodeState, &l.ASCIIData, &l.CompactData,
	}

	*offsets[int(field)%len(offsets)] = uint64(offset)
	return l
}

// FuzzReadCode: whatever the memory and the layout, the data read are bounded, and the texts are
// printable.
func FuzzReadCode(f *testing.F) {
	// The most that is read of a code object, in bytes: itself, two texts of 4-byte characters, a
	// table.
	const maxRead = 64<<10 + 2*(64<<10+4*maxTextBytes) + maxLinetableBytes + 8

	complete := codeObject().bytes
	for _, seed := range [][]byte{
		complete, complete[:0x300], complete[:16], bytes.Repeat([]byte{0x34}, 1<<10), {},
	} {
		for minor := 8; minor <= 14; minor++ {
			f.Add(seed, uint64(codeAddress), minor, uint8(0), uint16(objectLayout.Filename))
			f.Add(seed, uint64(codeAddress), minor, uint8(minor), uint16(0xffff))
			f.Add(seed, ^uint64(0), minor, uint8(2), uint16(0))
		}
	}

	f.Fuzz(
		func(t *testing.T, memory []byte, address uint64, minor int, field uint8, offset uint16) {
			layout := withOffset(objectLayout, field, offset)
			if v, err := cpython.Find(minor); err == nil {
				layout.LineForm, layout.HasWideInterned = v.LineForm, v.HasWideInterned
			}
			m := &countingMemory{Memory: fakeMemory{codeAddress, memory}}
			code, err := ReadCode(m, address, layout)

			if m.read > maxRead {
				t.Errorf("%d bytes are read, more than %d", m.read, maxRead)
			}

			if err != nil {
				return
			}

			for _, text := range []string{code.Function, code.File} {
				if len(text) > maxTextBytes+len("…") || !utf8.ValidString(text) ||
					growth.Printable(text) != text {
					t.Errorf("a text is %q", text)
				}
			}

			if line := code.Line(0); line < 0 {
				t.Errorf("line %d", line)
			}
		},
	)
}
