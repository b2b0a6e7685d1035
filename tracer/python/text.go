package python

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/allocscope/allocscope/tracer/process"
)

const (
	textLimit      = 4 << 10 // bytes of UTF-8
	lineTableLimit = 1 << 20 // bytes: some 100,000 lines in one function
)

// readText reads a str in one of the compact forms, which all names have that the compiler makes. What is longer than
// textLimit is cut and ends in "…".
func readText(m Memory, address uint64, layout CodeLayout) (string, error) {
	header := make([]byte, max(int(layout.TextLength)+8, int(layout.TextState)+4))
	if err := m.ReadMemory(address, header); err != nil {
		return "", fmt.Errorf("read str at %#x: %w", address, err)
	}
	state := decodeTextState(uint32(integer(header, layout.TextState)), layout.Minor)
	length := int64(pointer(header, layout.TextLength))
	if !state.known() || length < 0 {
		return "", fmt.Errorf("read str at %#x: not a compact string", address)
	}
	start := layout.TextCompact
	if state.ascii {
		start = layout.TextASCII
	}
	data := make([]byte, min(length, textLimit)*int64(state.width))
	if err := m.ReadMemory(address+uint64(start), data); err != nil {
		return "", fmt.Errorf("read characters of str at %#x: %w", address, err)
	}
	text := process.Printable(decodeText(data, state.width))
	return cutText(text, length > textLimit), nil
}

// A textState is what the bit fields of a str say.
type textState struct {
	width          int // bytes a character
	compact, ascii bool
}

// decodeTextState takes the bit fields apart. Before them is `interned`: 2 bits, also in 3.14.8, but 16 in newer headers. The
// width tells which, as it is never 0 and `interned` at most 3. The bits behind the fields may be anything.
// https://github.com/python/cpython/blob/3.14/Include/cpython/unicodeobject.h
func decodeTextState(state uint32, minor int) textState {
	fields := state >> 2
	if minor >= 14 && fields&7 == 0 {
		fields = state >> 16
	}
	return textState{width: int(fields & 7), compact: fields&8 != 0, ascii: fields&16 != 0}
}

// known reports whether there is such a compact string. Subclasses of str have others.
func (s textState) known() bool {
	switch s.width {
	case 1:
		return s.compact
	case 2, 4:
		return s.compact && !s.ascii
	}
	return false
}

// decodeText decodes characters of 1, 2 or 4 bytes. Surrogates stand alone, also in pairs: in a str each is a character
// that has no UTF-8.
func decodeText(data []byte, width int) string {
	var text strings.Builder
	text.Grow(len(data) / width)
	for ; len(data) >= width; data = data[width:] {
		var r rune
		switch width {
		case 1:
			r = rune(data[0])
		case 2:
			r = rune(binary.LittleEndian.Uint16(data))
		case 4:
			r = rune(binary.LittleEndian.Uint32(data))
		}
		if !utf8.ValidRune(r) {
			r = '?'
		}
		text.WriteRune(r)
	}
	return text.String()
}

// cutText cuts valid UTF-8 to textLimit, and marks what is cut or was before.
func cutText(text string, cut bool) string {
	if len(text) <= textLimit && !cut {
		return text
	}
	end := min(len(text), textLimit)
	for end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// readLineTable reads the bytes of a line table; nil if it is longer than lineTableLimit.
func readLineTable(m Memory, address uint64, layout CodeLayout) ([]byte, error) {
	var header [8]byte
	if err := m.ReadMemory(address+uint64(layout.BytesSize), header[:]); err != nil {
		return nil, fmt.Errorf("read bytes at %#x: %w", address, err)
	}
	size := int64(pointer(header[:], 0))
	if size < 0 {
		return nil, fmt.Errorf("read bytes at %#x: size %d", address, size)
	}
	if size > lineTableLimit {
		return nil, nil
	}
	table := make([]byte, size)
	if err := m.ReadMemory(address+uint64(layout.BytesData), table); err != nil {
		return nil, fmt.Errorf("read bytes at %#x: %w", address, err)
	}
	return table, nil
}
