package python

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/allocscope/allocscope/tracer/process"
)

// imageLayout is where drawn puts things.
var imageLayout = CodeLayout{
	Minor: 12, FileName: 112, Name: 120, QualifiedName: 128, FirstLine: 68, LineTable: 136, FirstTraceable: 176,
	BytesSize: 16, BytesData: 32, TextLength: 16, TextState: 32, TextASCII: 40, TextCompact: 56,
}

// Where drawn puts them: addresses.
const (
	imageStart = 0x1000
	codeAt     = imageStart
	nameAt     = imageStart + 0x100
	fileAt     = imageStart + 0x200
	tableAt    = imageStart + 0x300
)

// drawn is a memory with a code object of 3.12 in it.
func drawn() fakeMemory {
	m := fakeMemory{imageStart, make([]byte, 0x400)}
	m.put(codeAt+uint64(imageLayout.FileName), fileAt)
	m.put(codeAt+uint64(imageLayout.Name), nameAt)
	m.put(codeAt+uint64(imageLayout.QualifiedName), nameAt)
	m.put(codeAt+uint64(imageLayout.FirstLine), 5)
	m.put(codeAt+uint64(imageLayout.LineTable), tableAt)
	m.put(codeAt+uint64(imageLayout.FirstTraceable), 1)
	m.putText(nameAt, 1<<2|1<<5|1<<6, imageLayout.TextASCII, "name", 4)
	m.putText(fileAt, 2<<2|1<<5, imageLayout.TextCompact, "\x0d\x54\x4d\x52", 2)
	m.put(tableAt+uint64(imageLayout.BytesSize), 3)
	copy(m.bytes[tableAt-imageStart+uint64(imageLayout.BytesData):], "\xd8\x00\x01")
	return m
}

// putText puts a str with a state word, its characters at offset start.
func (m fakeMemory) putText(address, state uint64, start uint16, characters string, length uint64) {
	m.put(address+uint64(imageLayout.TextLength), length)
	m.put(address+uint64(imageLayout.TextState), state)
	copy(m.bytes[address-m.start+uint64(start):], characters)
}

func TestReadCodeOfADrawnObject(t *testing.T) {
	code, err := ReadCode(drawn(), codeAt, imageLayout)
	if err != nil {
		t.Fatal(err)
	}
	if code.Function != "name" || code.File != "名前" || code.Line(0) != 6 || !code.Internal(1) || code.Internal(2) {
		t.Errorf("the code object is %+v", code)
	}
}

func TestReadCodeOfABrokenObject(t *testing.T) {
	for _, c := range []struct {
		name    string
		address uint64
		value   uint64
		want    string
	}{
		{"a name at NULL", codeAt + 128, 0, "read function name of code object at 0x1000: read str at 0x0: no memory"},
		{"a file name that is not mapped", codeAt + 112, 1 << 50, "read file name of code object at 0x1000: read str"},
		{"a name at the end of the address space", codeAt + 128, 1<<64 - 1, "read str at 0xffffffffffffffff: no memory"},
		{"a name of negative length", nameAt + 16, 1<<64 - 1, "not a compact string"},
		{"a name that is longer than the memory", nameAt + 16, 1 << 62, "read characters of str at 0x1100: no memory"},
		{"a name that is not compact", nameAt + 32, 1<<2 | 1<<6, "not a compact string"},
		{"a name in characters of no size", nameAt + 32, 1<<5 | 1<<6, "not a compact string"},
		{"a name in characters of 3 bytes", nameAt + 32, 3<<2 | 1<<5, "not a compact string"},
		{"a name in ASCII characters of 2 bytes", nameAt + 32, 2<<2 | 1<<5 | 1<<6, "not a compact string"},
		{"a line table at NULL", codeAt + 136, 0, "read line table of code object at 0x1000: read bytes at 0x0: no memory"},
		{"a line table of negative length", tableAt + 16, 1 << 63, "read bytes at 0x1300: size -9223372036854775808"},
		{"a line table that is longer than the memory", tableAt + 16, lineTableLimit, "read bytes at 0x1300: no memory"},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := drawn()
			m.put(c.address, c.value)
			if code, err := ReadCode(m, codeAt, imageLayout); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("the code object is %+v, %v, want %q", code, err, c.want)
			}
		})
	}
	t.Run("no object", func(t *testing.T) {
		if _, err := ReadCode(drawn(), 1, imageLayout); err == nil || err.Error() != "read code object at 0x1: no memory at 0x1" {
			t.Error(err)
		}
		if _, err := ReadFingerprint(drawn(), 1<<64-1, imageLayout); err == nil {
			t.Error("an identity behind the address space was read")
		}
	})
}

func TestReadCodeOfALineTableThatIsTooLong(t *testing.T) {
	m := drawn()
	m.put(tableAt+uint64(imageLayout.BytesSize), lineTableLimit+1)
	code, err := ReadCode(m, codeAt, imageLayout)
	if err != nil {
		t.Fatal(err)
	}
	if code.Function != "name" || code.Line(0) != 0 || code.Line(-1) != 5 {
		t.Errorf("the code object is %+v, its first instruction in line %d", code, code.Line(0))
	}
}

// The two forms of the fields; what is behind them is not set.
func TestReadTextOf314(t *testing.T) {
	layout := imageLayout
	layout.Minor = 14
	for _, shift := range []int{2, 16} {
		for _, interned := range []uint64{0, 1, 3} {
			behind := uint64(0xffffff80) << (shift - 2) & (1<<32 - 1)
			m := drawn()
			m.putText(nameAt, interned|(1|1<<3|1<<4)<<shift|behind, layout.TextASCII, "text", 4)
			m.putText(fileAt, interned|(4|1<<3)<<shift|behind, layout.TextCompact, "\x00\xf6\x01\x00", 1)
			name, err := readText(m, nameAt, layout)
			if err != nil || name != "text" {
				t.Errorf("ASCII interned as %d in fields from bit %d is %q, %v", interned, shift, name, err)
			}
			if file, err := readText(m, fileAt, layout); err != nil || file != "\U0001f600" {
				t.Errorf("a character of 4 bytes interned as %d in fields from bit %d is %q, %v", interned, shift, file, err)
			}
		}
	}
}

// Characters of 4 bytes can be what no str holds: behind Unicode, and negative as a rune.
func TestReadTextOfWhatIsNoCharacter(t *testing.T) {
	m := drawn()
	m.putText(nameAt, 4<<2|1<<5, imageLayout.TextCompact, "\x00\x00\x11\x00\xff\xff\xff\xffA\x00\x00\x00", 3)
	if name, err := readText(m, nameAt, imageLayout); err != nil || name != "??A" {
		t.Errorf("the name is %q, %v, want ??A", name, err)
	}
}

// An endlessMemory is the same word everywhere, and notes how much is read.
type endlessMemory struct {
	word uint64
	read int // bytes
}

func (m *endlessMemory) ReadMemory(_ uint64, buffer []byte) error {
	for i := range buffer {
		buffer[i] = byte(m.word >> (i % 8 * 8))
	}
	m.read += len(buffer)
	return nil
}

// mostRead is the most that a code object may cost, in bytes: itself, two texts of characters of 4 bytes, a table.
const mostRead = 64<<10 + 2*(64<<10+4*textLimit) + lineTableLimit + 8

func TestReadCodeReadsLittleOfAnEndlessObject(t *testing.T) {
	layout := imageLayout
	layout.BytesData = 0
	for word, least := range map[uint64]int{
		1<<40 | 4<<2 | 1<<5: 2 * 4 * textLimit,   // a length, and the state of characters of 4 bytes
		1<<19 | 1<<2 | 1<<5: 2*textLimit + 1<<19, // a length, and the state of characters of 1 byte
	} {
		m := &endlessMemory{word: word}
		if _, err := ReadCode(m, codeAt, layout); err != nil {
			t.Error(err)
		}
		if m.read < least || m.read > least+1<<10 {
			t.Errorf("%d bytes are read of an object of words %#x, want little more than %d", m.read, word, least)
		}
	}
}

// A countingMemory notes how much is read of it.
type countingMemory struct {
	fakeMemory
	read int // bytes
}

func (m *countingMemory) ReadMemory(address uint64, buffer []byte) error {
	m.read += len(buffer)
	return m.fakeMemory.ReadMemory(address, buffer)
}

// withOffset is the layout with one of its offsets changed.
func withOffset(layout CodeLayout, field uint8, offset uint16) CodeLayout {
	offsets := []*uint16{
		&layout.FileName, &layout.Name, &layout.QualifiedName, &layout.FirstLine, &layout.LineTable, &layout.FirstTraceable,
		&layout.BytesSize, &layout.BytesData, &layout.TextLength, &layout.TextState, &layout.TextASCII,
		&layout.TextCompact,
	}
	*offsets[int(field)%len(offsets)] = offset
	return layout
}

// Whatever the memory and the layout: what is read is bounded, and what is found can be shown.
func FuzzReadCode(f *testing.F) {
	whole := drawn().bytes
	for _, seed := range [][]byte{whole, whole[:0x300], whole[:16], bytes.Repeat([]byte{0x34}, 1<<10), {}} {
		for minor := 8; minor <= 14; minor++ {
			f.Add(seed, uint64(codeAt), minor, uint8(0), imageLayout.FileName)
			f.Add(seed, uint64(codeAt), minor, uint8(minor), uint16(0xffff))
			f.Add(seed, ^uint64(0), minor, uint8(2), uint16(0))
		}
	}
	f.Fuzz(func(t *testing.T, memory []byte, address uint64, minor int, field uint8, offset uint16) {
		layout := withOffset(imageLayout, field, offset)
		layout.Minor = minor
		m := &countingMemory{fakeMemory: fakeMemory{imageStart, memory}}
		code, err := ReadCode(m, address, layout)
		if m.read > mostRead {
			t.Errorf("%d bytes are read, more than %d", m.read, mostRead)
		}
		if err != nil {
			return
		}
		for _, text := range []string{code.Function, code.File} {
			if len(text) > textLimit+len("…") || !utf8.ValidString(text) || process.Printable(text) != text {
				t.Errorf("a text is %q", text)
			}
		}
		if line := code.Line(0); line < 0 {
			t.Errorf("line %d", line)
		}
	})
}
