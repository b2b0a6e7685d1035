package python

import (
	"encoding/binary"
	"fmt"
	"math"
	"unicode/utf8"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
)

const (
	maxTextBytes      = 4 << 10 // bytes of UTF-8 that are kept of a name
	maxLinetableBytes = 1 << 20 // bytes of a co_linetable: some 100,000 lines in one function
)

// A Code has a PyCodeObject's facts on its function.
type Code struct {
	Function  string // co_qualname, before 3.11 co_name; printable, valid UTF-8
	File      string // co_filename, which is not always a path; printable, valid UTF-8
	FirstLine int    // co_firstlineno

	lineForm       cpython.LineForm
	firstTraceable int64  // bytes; less than any offset before 3.11
	linetable      []byte // nil: longer than maxLinetableBytes
}

// noFirstTraceable is less than the offset of any instruction.
const noFirstTraceable = -1 << 32

// ReadCode reads the PyCodeObject at address. It is an error if memory cannot be read or holds no
// such object.
func ReadCode(m Memory, address uint64, layout cpython.CodeLayout) (*Code, error) {
	object := make([]byte, codeSize(&layout))
	if err := m.ReadMemory(address, object); err != nil {
		return nil, fmt.Errorf("read code object at %#x: %w", address, err)
	}

	code := &Code{
		FirstLine:      int(int32At(object, layout.Firstlineno)),
		lineForm:       layout.LineForm,
		firstTraceable: noFirstTraceable,
	}

	if layout.FirstTraceable != cpython.Absent {
		code.firstTraceable = 2 * int64(int32At(object, layout.FirstTraceable))
	}

	var err error
	if code.Function, err = readText(m, mem.Word(object, nameOf(&layout)), layout); err != nil {
		return nil, fmt.Errorf("read function name of code object at %#x: %w", address, err)
	}
	if code.File, err = readText(m, mem.Word(object, layout.Filename), layout); err != nil {
		return nil, fmt.Errorf("read file name of code object at %#x: %w", address, err)
	}

	code.linetable, err = readLinetable(m, mem.Word(object, layout.Linetable), layout)
	if err != nil {
		return nil, fmt.Errorf("read line table of code object at %#x: %w", address, err)
	}

	return code, nil
}

// nameOf returns the offset of the name that a function is called by: co_qualname, or co_name where
// there is none.
func nameOf(l *cpython.CodeLayout) uint64 {
	if l.Qualname != cpython.Absent {
		return l.Qualname
	}
	return l.Name
}

// codeSize is the size of the part of a PyCodeObject that is read, in bytes.
func codeSize(l *cpython.CodeLayout) uint64 {
	size := max(l.Filename+8, nameOf(l)+8, l.Linetable+8, l.Firstlineno+4)
	if l.FirstTraceable != cpython.Absent {
		size = max(size, l.FirstTraceable+4)
	}
	return size
}

func int32At(object []byte, offset uint64) int32 { return int32(mem.Word32(object, offset)) }

// TextBytes is the memory of the names and of the line table, in bytes; 0 for nil.
func (c *Code) TextBytes() int {
	if c == nil {
		return 0
	}
	return len(c.Function) + len(c.File) + len(c.linetable)
}

// IsIncomplete reports whether a frame at a byte offset in the bytecode is a shim of the
// interpreter, or a function that has not begun. CPython leaves such frames out of tracebacks.
// This is _PyFrame_IsIncomplete:
// https://github.com/python/cpython/blob/v3.12.0/Include/internal/pycore_frame.h
func (c *Code) IsIncomplete(offset int32) bool { return int64(offset) < c.firstTraceable }

// Line returns the line of the instruction at a byte offset in the bytecode, as PyCode_Addr2Line
// does, and FirstLine for a negative offset: before the first instruction. It is 0 if the
// instruction belongs to no line or lies behind the end of the line table.
func (c *Code) Line(offset int32) int {
	line, found := int64(c.FirstLine), true
	switch {
	case offset < 0:
	case c.linetable == nil:
		found = false
	case c.lineForm == cpython.Lnotab:
		line = lnotabLine(c.linetable, line, int(offset))
	case c.lineForm == cpython.Linetable310:
		line, found = linetable310Line(c.linetable, line, int(offset))
	default:
		line, found = locationTableLine(c.linetable, line, int(offset))
	}

	if !found || line < 0 || line > math.MaxInt32 {
		return 0
	}

	return int(line)
}

// lnotabLine looks an offset up in a co_lnotab of 3.8 and 3.9: pairs of a bytecode delta,
// unsigned, and a line delta, signed. The last line holds to the end of the bytecode.
// https://github.com/python/cpython/blob/v3.9.0/Objects/lnotab_notes.txt
func lnotabLine(lnotab []byte, line int64, offset int) int64 {
	for end := 0; len(lnotab) >= 2; lnotab = lnotab[2:] {
		end += int(lnotab[0])
		if end > offset {
			break
		}

		line += int64(int8(lnotab[1]))
	}

	return line
}

// linetable310Line looks an offset up in a co_linetable of 3.10: pairs of a start delta, which is
// the length of the range in bytes, and a line delta, signed. -128 marks a range without a line.
// https://github.com/python/cpython/blob/v3.10.0/Objects/lnotab_notes.txt
func linetable310Line(table []byte, line int64, offset int) (int64, bool) {
	const noLine = -128
	for end := 0; len(table) >= 2; table = table[2:] {
		end += int(table[0])
		delta := int8(table[1])
		if delta != noLine {
			line += int64(delta)
		}

		if end > offset {
			return line, delta != noLine
		}
	}

	return 0, false
}

// Kinds of location table entries that move the line, or have none (enum
// _PyCodeLocationInfoKind). All others stay on the line.
// https://github.com/python/cpython/blob/v3.12.0/Include/cpython/code.h
const (
	locationOneLine1  = 11 // PY_CODE_LOCATION_INFO_ONE_LINE1
	locationOneLine2  = 12 // PY_CODE_LOCATION_INFO_ONE_LINE2
	locationNoColumns = 13 // PY_CODE_LOCATION_INFO_NO_COLUMNS: a svarint follows, the line delta
	locationLong      = 14 // PY_CODE_LOCATION_INFO_LONG: line delta, end line and columns follow
	locationNone      = 15 // PY_CODE_LOCATION_INFO_NONE
)

// locationTableLine looks an offset up in a co_linetable of 3.11 and later, the location table.
// Entries begin with a byte of 1<<7 | kind<<3 | length-1, the length in code units of 2 bytes.
// https://github.com/python/cpython/blob/v3.12.0/Objects/locations.md
func locationTableLine(table []byte, line int64, offset int) (int64, bool) {
	for end := 0; len(table) > 0; {
		var entry []byte
		entry, table = nextLocation(table)

		kind := entry[0] >> 3 & 15
		switch kind {
		case locationOneLine1:
			line++
		case locationOneLine2:
			line += 2
		case locationNoColumns, locationLong:
			line += readSvarint(entry[1:])
		}

		end += 2 * (int(entry[0]&7) + 1)
		if end > offset {
			return line, kind != locationNone
		}
	}

	return 0, false
}

// nextLocation splits off the first entry. It ends where the next byte has its highest bit set.
func nextLocation(table []byte) (entry, rest []byte) {
	for i := 1; i < len(table); i++ {
		if table[i]&0x80 != 0 {
			return table[:i], table[i:]
		}
	}

	return table, nil
}

// readSvarint reads a signed varint: 6 bits a byte, the lowest first, bit 6 set in all bytes but
// the last; the sign is the lowest bit of the number. Bits beyond 32 are lost, as in
// scan_signed_varint.
func readSvarint(varint []byte) int64 {
	var value uint32
	for i, b := range varint {
		value |= uint32(b&0x3f) << (6 * i)
		if b&0x40 == 0 {
			break
		}
	}

	if value&1 != 0 {
		return -int64(value >> 1)
	}

	return int64(value >> 1)
}

// readText reads a str in one of the compact forms, which all names have that the compiler makes.
// Text longer than maxTextBytes is truncated and ends in "…".
func readText(m Memory, address uint64, layout cpython.CodeLayout) (string, error) {
	characters, length, err := ReadCharacters(m, address, layout, maxTextBytes)
	if err != nil {
		return "", err
	}
	return truncateText(growth.Printable(string(characters)), length > maxTextBytes), nil
}

// ReadCharacters reads the first characters of the str at an address, at most limit, and how many it
// has. They may be surrogates. It is an error if memory cannot be read or holds no str in one of the
// compact forms.
func ReadCharacters(m Memory, address uint64, layout cpython.CodeLayout, limit int64) (
	characters []rune, length int64, err error,
) {
	header := make([]byte, max(layout.UnicodeLength+8, layout.UnicodeState+4))
	if err := m.ReadMemory(address, header); err != nil {
		return nil, 0, fmt.Errorf("read str at %#x: %w", address, err)
	}

	state := parseUnicodeState(mem.Word32(header, layout.UnicodeState), layout.HasWideInterned)
	length = int64(mem.Word(header, layout.UnicodeLength))
	if !state.isCompact() || length < 0 {
		return nil, 0, fmt.Errorf("read str at %#x: not a compact string", address)
	}

	start := layout.CompactData
	if state.ascii {
		start = layout.ASCIIData
	}

	data := make([]byte, min(length, limit)*int64(state.kind))
	if err := m.ReadMemory(address+start, data); err != nil {
		return nil, 0, fmt.Errorf("read characters of str at %#x: %w", address, err)
	}
	return decodeCharacters(data, state.kind), length, nil
}

// A unicodeState is the bit fields of PyASCIIObject.state.
type unicodeState struct {
	kind           int // bytes a character
	compact, ascii bool
}

// parseUnicodeState takes the bit fields apart. `interned` comes first: 2 bits, also in 3.14.8,
// but 8 in free-threaded builds of 3.14 and 16 in newer headers. `kind` shows which, because it is
// never 0 and `interned` at most 3.
// The bits behind the fields may have any value.
// https://github.com/python/cpython/blob/v3.14.0/Include/cpython/unicodeobject.h
func parseUnicodeState(state uint32, hasWideInterned bool) unicodeState {
	fields := state >> 2
	for _, interned := range []int{8, 16} {
		if hasWideInterned && fields&7 == 0 {
			fields = state >> interned
		}
	}

	return unicodeState{kind: int(fields & 7), compact: fields&8 != 0, ascii: fields&16 != 0}
}

// isCompact reports whether these are the fields of a compact str. Subclasses of str have others.
func (s unicodeState) isCompact() bool {
	switch s.kind {
	case 1:
		return s.compact
	case 2, 4:
		return s.compact && !s.ascii
	}

	return false
}

// decodeCharacters decodes characters of 1, 2 or 4 bytes.
func decodeCharacters(data []byte, kind int) []rune {
	characters := make([]rune, 0, len(data)/kind)
	for ; len(data) >= kind; data = data[kind:] {
		var r rune
		switch kind {
		case 1:
			r = rune(data[0])
		case 2:
			r = rune(binary.LittleEndian.Uint16(data))
		case 4:
			r = rune(binary.LittleEndian.Uint32(data))
		}
		characters = append(characters, r)
	}
	return characters
}

// truncateText truncates valid UTF-8 to maxTextBytes. It marks text that it truncates, or that was
// truncated before.
func truncateText(text string, truncated bool) string {
	if len(text) <= maxTextBytes && !truncated {
		return text
	}

	end := min(len(text), maxTextBytes)
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}

	return text[:end] + "…"
}

// readLinetable reads the bytes object of a line table, nil if it is longer than maxLinetableBytes.
func readLinetable(m Memory, address uint64, layout cpython.CodeLayout) ([]byte, error) {
	size, err := readWord(m, address+layout.BytesSize)
	if err != nil {
		return nil, fmt.Errorf("read bytes at %#x: %w", address, err)
	}
	if int64(size) < 0 {
		return nil, fmt.Errorf("read bytes at %#x: size %d", address, int64(size))
	}
	if size > maxLinetableBytes {
		return nil, nil
	}

	table := make([]byte, size)
	if err := m.ReadMemory(address+layout.BytesData, table); err != nil {
		return nil, fmt.Errorf("read bytes at %#x: %w", address, err)
	}

	return table, nil
}

// Parts that the fingerprint of a code object covers, in words.
const (
	fingerprintPointers = 4 // in a row: co_filename, co_name, since 3.11 co_qualname, line table
	fingerprintContent  = 5 // of line table and file name: length, hash value, and the first bytes
	fingerprintHash     = 1 // index of the hash value, which the interpreter computes on demand
)

// ReadFingerprint returns a hash that tells a code object apart from others that were or will be
// at its address, as the BPF programs compute it (fingerprint in bpf/unwind/code.h). Content of the
// line table or the file name that cannot be read counts as zeros.
func ReadFingerprint(m Memory, address uint64, layout cpython.CodeLayout) (uint32, error) {
	pointers, err := readWords(m, address+layout.Filename, fingerprintPointers)
	if err != nil {
		return 0, fmt.Errorf("read identity of code object at %#x: %w", address, err)
	}

	table := pointers[3]
	if layout.Linetable-layout.Filename == 16 {
		table = pointers[2]
	}

	lines, _ := readWords(m, table+layout.BytesSize, fingerprintContent)
	file, _ := readWords(m, pointers[0]+layout.UnicodeLength, fingerprintContent)
	lines[fingerprintHash], file[fingerprintHash] = 0, 0

	var hash uint64
	for _, value := range pointers[:3] {
		hash = mix(hash, value)
	}

	for i := range fingerprintContent {
		hash = mix(mix(hash, lines[i]), file[i])
	}

	return uint32(hash >> 32), nil
}

// mix is as in bpf/unwind/walk.h.
func mix(hash, value uint64) uint64 {
	hash = (hash ^ value) * 0x9E3779B97F4A7C15
	return hash ^ hash>>29
}

// readWords reads words of 8 bytes. With an error they are zeros.
func readWords(m Memory, address uint64, count int) ([]uint64, error) {
	words, buffer := make([]uint64, count), make([]byte, 8*count)
	if err := m.ReadMemory(address, buffer); err != nil {
		return words, err
	}

	for i := range words {
		words[i] = binary.LittleEndian.Uint64(buffer[8*i:])
	}

	return words, nil
}
