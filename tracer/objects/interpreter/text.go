package interpreter

import (
	"encoding/binary"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/python"
)

const (
	maxText       = 200 // characters of a text
	maxPath       = 1024
	maxBytesKey   = 40 // bytes of a bytes object
	maxIntDigits  = 10 // of 30 bits each
	maxTupleItems = 8
	maxTupleDepth = 3
)

// Text returns the first 200 characters of a str, printable.
func (r *Runtime) Text(address uint64) (string, bool) {
	return r.newReader().text(address, maxText)
}

// text returns the first characters of a str, at most limit, printable.
func (r *reader) text(address uint64, limit int64) (string, bool) {
	if !r.is(address, "PyUnicode_Type") {
		return "", false
	}
	characters, length, err := python.ReadCharacters(r, address, r.interpreter.CodeLayout, limit)
	if err != nil {
		return "", false
	}
	text := growth.Printable(string(characters))
	if length > limit {
		text += "…"
	}
	return text, true
}

// Repr returns an object that can be a key of a dict in Python's notation: a str, int, bool, None,
// bytes or tuple of these. ok is false for others, and for those that are long.
func (r *Runtime) Repr(address uint64) (text string, ok bool) {
	return r.newReader().repr(address, maxTupleDepth)
}

func (r *reader) repr(address uint64, depth int) (string, bool) {
	objects := r.interpreter.State.Objects
	switch t, ok := r.typeOf(address); {
	case !ok || t == 0:
		return "", false
	case address == objects["_Py_NoneStruct"]:
		return "None", true
	case address == objects["_Py_TrueStruct"]:
		return "True", true
	case address == objects["_Py_FalseStruct"]:
		return "False", true
	case t == objects["PyUnicode_Type"]:
		characters, length, err := python.ReadCharacters(r, address, r.interpreter.CodeLayout, maxText)
		if err != nil || length > maxText || slices.ContainsFunc(characters, isNoCharacter) {
			return "", false
		}
		return quote(characters), true
	case t == objects["PyLong_Type"]:
		return r.integer(address)
	case t == objects["PyBytes_Type"]:
		return r.byteString(address)
	case t == objects["PyTuple_Type"]:
		return r.tuple(address, depth)
	}

	return "", false
}

// integer returns an int.
func (r *reader) integer(address uint64) (string, bool) {
	size, ok := r.word(address + cpython.ObSize)
	if !ok {
		return "", false
	}
	count, isNegative := r.version.LongSize(size)
	if count > maxIntDigits {
		return "", false
	}

	digits := r.bytes(address+cpython.LongDigits, int(count)*4)
	if digits == nil {
		return "", false
	}

	value := new(big.Int)
	for i := int(count) - 1; i >= 0; i-- {
		digit := binary.LittleEndian.Uint32(digits[4*i:])
		if digit >= 1<<cpython.LongDigitBits {
			return "", false
		}
		value.Lsh(value, cpython.LongDigitBits).Or(value, big.NewInt(int64(digit)))
	}

	if isNegative {
		value.Neg(value)
	}

	return value.String(), true
}

// byteString returns a bytes object.
func (r *reader) byteString(address uint64) (string, bool) {
	size, ok := r.word(address + r.interpreter.CodeLayout.BytesSize)
	if !ok || size > maxBytesKey {
		return "", false
	}
	data := r.bytes(address+r.interpreter.CodeLayout.BytesData, int(size))
	if data == nil {
		return "", false
	}

	runes := make([]rune, len(data))
	for i, b := range data {
		runes[i] = rune(b)
	}
	return "b" + quoteRunes(runes, func(c rune) bool { return c < utf8.RuneSelf }), true
}

// tuple returns a tuple.
func (r *reader) tuple(address uint64, depth int) (string, bool) {
	items, ok := r.items(address, maxTupleItems)
	if !ok || depth == 0 {
		return "", false
	}
	texts := make([]string, len(items))
	for i, item := range items {
		if texts[i], ok = r.repr(item, depth-1); !ok {
			return "", false
		}
	}

	if len(texts) == 1 {
		return "(" + texts[0] + ",)", true
	}

	return "(" + strings.Join(texts, ", ") + ")", true
}

// items returns the items of a tuple that has at most limit of them.
func (r *reader) items(address uint64, limit int) ([]uint64, bool) {
	if !r.is(address, "PyTuple_Type") {
		return nil, false
	}
	size, ok := r.word(address + cpython.ObSize)
	if !ok || size > uint64(limit) {
		return nil, false
	}
	memory := r.bytes(address+r.version.TupleItem, int(size)*8)
	if memory == nil {
		return nil, false
	}

	items := make([]uint64, size)
	for i := range items {
		items[i] = mem.Word(memory, uint64(i)*8)
	}

	return items, true
}

// isNoCharacter reports whether a number is beyond Unicode. A surrogate is a character of a str.
func isNoCharacter(c rune) bool { return c < 0 || c > unicode.MaxRune }

// quote is repr of a str.
func quote(text []rune) string { return quoteRunes(text, unicode.IsPrint) }

// quoteRunes puts characters between quotes, as Python does, and escapes those that are not
// printable.
func quoteRunes(text []rune, printable func(rune) bool) string {
	mark := '\''
	if slices.Contains(text, '\'') && !slices.Contains(text, '"') {
		mark = '"'
	}
	var quoted strings.Builder
	quoted.WriteRune(mark)
	for _, c := range text {
		switch {
		case c == mark || c == '\\':
			quoted.WriteRune('\\')
			quoted.WriteRune(c)
		case c == '\n':
			quoted.WriteString(`\n`)
		case c == '\r':
			quoted.WriteString(`\r`)
		case c == '\t':
			quoted.WriteString(`\t`)
		case printable(c) && unicode.IsPrint(c):
			quoted.WriteRune(c)
		case c < 0x100:
			fmt.Fprintf(&quoted, `\x%02x`, c)
		case c < 0x10000:
			fmt.Fprintf(&quoted, `\u%04x`, c)
		default:
			fmt.Fprintf(&quoted, `\U%08x`, c)
		}
	}

	quoted.WriteRune(mark)
	return quoted.String()
}
