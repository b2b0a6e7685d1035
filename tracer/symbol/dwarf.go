package symbol

import (
	"bytes"
	"encoding/binary"
)

// A dwarf reads the encodings of unwind information. What is beyond the end reads as 0.
type dwarf struct{ rest []byte }

// take gives the next n bytes, or what there is.
func (r *dwarf) take(n uint64) []byte {
	n = min(n, uint64(len(r.rest)))
	head := r.rest[:n]
	r.rest = r.rest[n:]
	return head
}

func (r *dwarf) skip(n uint64) { r.take(n) }

// fixed reads a number of that many bytes, up to 8.
func (r *dwarf) fixed(size int) uint64 {
	var word [8]byte
	copy(word[:], r.take(uint64(size)))
	return binary.LittleEndian.Uint64(word[:])
}

// signed reads a signed number of 4 or 8 bytes, and gives it modulo 2^64.
func (r *dwarf) signed(size int) uint64 {
	if size == 4 {
		return uint64(int64(int32(r.fixed(4))))
	}
	return r.fixed(8)
}

// uleb reads an unsigned LEB128 number, modulo 2^64. A signed one takes as many bytes.
func (r *dwarf) uleb() (value uint64) {
	for shift := 0; len(r.rest) > 0; shift += 7 {
		b := r.fixed(1)
		value |= b & 0x7f << shift
		if b&0x80 == 0 {
			break
		}
	}
	return value
}

// text reads up to a zero byte.
func (r *dwarf) text() string {
	head, rest, _ := bytes.Cut(r.rest, []byte{0})
	r.rest = rest
	return string(head)
}

// A frameRule says where the canonical frame address is: a register and an offset in bytes.
type frameRule struct{ register, offset uint64 }

// ruleExpression stands for a register where an expression gives the canonical frame address.
const ruleExpression = ^uint64(0)

// Call frame instructions (DWARF 5, section 7.24) before the first that moves on to another address: those that set the
// canonical frame address, and the operands of the others: 'u' for a LEB128 number, 'b' for a block.
const (
	frameNop         = 0x00
	frameSetLocation = 0x01
	frameAdvance4    = 0x04
	frameDefine      = 0x0c
	frameRegister    = 0x0d
	frameOffset      = 0x0e
	frameExpression  = 0x0f
	frameAdvance     = 1 // the two highest bits
	frameSaved       = 2
	frameRestored    = 3
)

var frameOperands = map[uint64]string{
	frameNop: "", 0x05: "uu", 0x06: "u", 0x07: "u", 0x08: "u", 0x09: "uu", 0x0a: "", 0x0b: "", 0x10: "ub",
	0x11: "uu", 0x14: "uu", 0x15: "uu", 0x16: "ub", 0x2d: "", 0x2e: "u",
}

// run follows the instructions that hold where the code starts. ok is false if one of them is not known.
func (f *frameRule) run(instructions []byte) (ok bool) {
	r := dwarf{instructions}
	for len(r.rest) > 0 {
		switch op := r.fixed(1); {
		case op>>6 == frameAdvance, op >= frameSetLocation && op <= frameAdvance4:
			return true
		case op>>6 == frameSaved:
			r.uleb()
		case op>>6 == frameRestored:
		case op == frameDefine:
			f.register, f.offset = r.uleb(), r.uleb()
		case op == frameRegister:
			f.register = r.uleb()
		case op == frameOffset:
			f.offset = r.uleb()
		case op == frameExpression:
			f.register = ruleExpression
			r.skip(r.uleb())
		default:
			operands, known := frameOperands[op]
			if !known {
				return false
			}
			r.operands(operands)
		}
	}
	return true
}

func (r *dwarf) operands(kinds string) {
	for _, kind := range kinds {
		size := r.uleb()
		if kind == 'b' {
			r.skip(size)
		}
	}
}
