// Package python finds the CPython of a process and tells what its frames are called: function, file and line.
// Everything it reads belongs to the traced process and may be wrong, torn or hostile: sizes are bounded, and what cannot
// be true is an error.
package python

import (
	"encoding/binary"
	"fmt"
)

// Memory reads the memory of the traced process. An error where not all of buffer could be read.
type Memory interface {
	ReadMemory(address uint64, buffer []byte) error
}

// A CodeLayout says where a version of CPython keeps what a frame's name needs: offsets in bytes.
type CodeLayout struct {
	Minor int // of Python 3: 8 to 14

	// In PyCodeObject.
	FileName       uint16 // pointer to a str
	Name           uint16 // pointer to a str
	QualifiedName  uint16 // pointer to a str; 0: before 3.11, which has none
	FirstLine      uint16 // int
	LineTable      uint16 // pointer to a bytes
	FirstTraceable uint16 // int, in code units of 2 bytes; 0: before 3.11, which has none

	// In PyBytesObject.
	BytesSize uint16 // bytes, a word
	BytesData uint16

	// In PyUnicodeObject.
	TextLength  uint16 // characters, a word
	TextState   uint16 // the bit fields of 32 bits
	TextASCII   uint16 // data of compact ASCII
	TextCompact uint16 // data of other compact strings
}

// A Code is what a code object says of itself.
type Code struct {
	Function  string // qualified from 3.11 on; printable, valid UTF-8
	File      string // as the program gave it, not always a path; printable, valid UTF-8
	FirstLine int

	minor          int
	firstTraceable int64  // bytes; less than any offset where the version has none
	table          []byte // nil: longer than lineTableLimit
}

// noTraceable is below the offset of every instruction.
const noTraceable = -1 << 32

// ReadCode reads the code object at address. An error where memory cannot be read or holds no such object.
func ReadCode(m Memory, address uint64, layout CodeLayout) (*Code, error) {
	object := make([]byte, layout.codeSize())
	if err := m.ReadMemory(address, object); err != nil {
		return nil, fmt.Errorf("read code object at %#x: %w", address, err)
	}
	code := &Code{
		FirstLine:      int(integer(object, layout.FirstLine)),
		minor:          layout.Minor,
		firstTraceable: noTraceable,
	}
	name := layout.Name
	if layout.QualifiedName != 0 {
		name = layout.QualifiedName
	}
	if layout.FirstTraceable != 0 {
		code.firstTraceable = 2 * int64(integer(object, layout.FirstTraceable))
	}
	var err error
	if code.Function, err = readText(m, pointer(object, name), layout); err != nil {
		return nil, fmt.Errorf("read function name of code object at %#x: %w", address, err)
	}
	if code.File, err = readText(m, pointer(object, layout.FileName), layout); err != nil {
		return nil, fmt.Errorf("read file name of code object at %#x: %w", address, err)
	}
	if code.table, err = readLineTable(m, pointer(object, layout.LineTable), layout); err != nil {
		return nil, fmt.Errorf("read line table of code object at %#x: %w", address, err)
	}
	return code, nil
}

// Internal reports whether a frame that stands at a byte offset in the bytecode is one that the interpreter made for
// itself: a shim, or a function that has not begun.
// https://github.com/python/cpython/blob/3.12/Include/internal/pycore_frame.h, _PyFrame_IsIncomplete.
func (c *Code) Internal(offset int32) bool { return int64(offset) < c.firstTraceable }

// Of a code object's identity: pointers to the file name, the name and, from 3.11 on, the qualified name and the line table,
// which are in a row; and of line table and file name the length, a hash value, and what comes first.
const (
	identityPointers = 4
	contentWords     = 5
	hashWord         = 1 // which the interpreter computes some time
)

// ReadFingerprint gives what tells a code object apart from others that were or will be at its address, as the kernel side
// computes it (fingerprint in bpf/python.h). What cannot be read of line table and file name counts as zeros.
func ReadFingerprint(m Memory, address uint64, layout CodeLayout) (uint32, error) {
	pointers, err := readWords(m, address+uint64(layout.FileName), identityPointers)
	if err != nil {
		return 0, fmt.Errorf("read identity of code object at %#x: %w", address, err)
	}
	table := pointers[3]
	if layout.LineTable-layout.FileName == 16 {
		table = pointers[2]
	}
	lines, _ := readWords(m, table+uint64(layout.BytesSize), contentWords)
	file, _ := readWords(m, pointers[0]+uint64(layout.TextLength), contentWords)
	lines[hashWord], file[hashWord] = 0, 0
	var hash uint64
	for _, value := range pointers[:3] {
		hash = mix(hash, value)
	}
	for i := range contentWords {
		hash = mix(mix(hash, lines[i]), file[i])
	}
	return uint32(hash >> 32), nil
}

// mix is that of bpf/walk.h.
func mix(hash, value uint64) uint64 {
	hash = (hash ^ value) * 0x9E3779B97F4A7C15
	return hash ^ hash>>29
}

// readWords gives zeros besides the error.
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

// codeSize is the size of the part of a code object that is read, in bytes.
func (l CodeLayout) codeSize() int {
	pointers := max(l.FileName, l.Name, l.QualifiedName, l.LineTable)
	return max(int(pointers)+8, int(l.FirstLine)+4, int(l.FirstTraceable)+4)
}

func pointer(object []byte, offset uint16) uint64 {
	return binary.LittleEndian.Uint64(object[offset:])
}

func integer(object []byte, offset uint16) int32 {
	return int32(binary.LittleEndian.Uint32(object[offset:]))
}
