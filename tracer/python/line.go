package python

import "math"

// Line is the line of the instruction at a byte offset in the bytecode, as PyCode_Addr2Line gives it; FirstLine before the
// first instruction (offset negative). 0: the instruction belongs to no line, or the table does not reach it.
func (c *Code) Line(offset int32) int {
	line, found := int64(c.FirstLine), true
	switch {
	case offset < 0:
	case c.table == nil:
		found = false
	case c.minor < 10:
		line = deltaLine(c.table, line, int(offset))
	case c.minor == 10:
		line, found = rangeLine(c.table, line, int(offset))
	default:
		line, found = locationLine(c.table, line, int(offset))
	}
	if !found || line < 0 || line > math.MaxInt32 {
		return 0
	}
	return int(line)
}

// deltaLine looks into a co_lnotab of 3.8 and 3.9: pairs of a step in the bytecode and a signed step in lines. The last line
// holds to the end.
// https://github.com/python/cpython/blob/3.9/Objects/lnotab_notes.txt
func deltaLine(table []byte, line int64, offset int) int64 {
	for end := 0; len(table) >= 2; table = table[2:] {
		end += int(table[0])
		if end > offset {
			break
		}
		line += int64(int8(table[1]))
	}
	return line
}

// rangeLine looks into a co_linetable of 3.10: pairs of a range's length in bytes and a signed step in lines.
// https://github.com/python/cpython/blob/3.10/Objects/lnotab_notes.txt
func rangeLine(table []byte, line int64, offset int) (int64, bool) {
	const noLine = -128
	for end := 0; len(table) >= 2; table = table[2:] {
		end += int(table[0])
		step := int8(table[1])
		if step != noLine {
			line += int64(step)
		}
		if end > offset {
			return line, step != noLine
		}
	}
	return 0, false
}

// Kinds of entry in a location table: those that move the line, or have none. All others stay on it.
const (
	oneLine1   = 11
	oneLine2   = 12
	noColumns  = 13 // a step follows
	longForm   = 14 // a step follows, and more that is not about the first line
	noLocation = 15
)

// locationLine looks into a co_linetable of 3.11 and later: entries that begin with a byte of 1<<7 | kind<<3 | length-1, the
// length in code units of 2 bytes.
// https://github.com/python/cpython/blob/3.12/Objects/locations.md
func locationLine(table []byte, line int64, offset int) (int64, bool) {
	for end := 0; len(table) > 0; {
		var entry []byte
		entry, table = cutLocation(table)
		kind := entry[0] >> 3 & 15
		switch kind {
		case oneLine1:
			line++
		case oneLine2:
			line += 2
		case noColumns, longForm:
			line += signedStep(entry[1:])
		}
		end += 2 * (int(entry[0]&7) + 1)
		if end > offset {
			return line, kind != noLocation
		}
	}
	return 0, false
}

// cutLocation cuts off the first entry: it ends where the next byte has its highest bit set.
func cutLocation(table []byte) (entry, rest []byte) {
	for i := 1; i < len(table); i++ {
		if table[i]&0x80 != 0 {
			return table[:i], table[i:]
		}
	}
	return table, nil
}

// signedStep reads a number of 6 bits a byte, the lowest first, the sign in its lowest bit. Bits that do not fit are lost.
func signedStep(number []byte) int64 {
	var value uint32
	for i, b := range number {
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
