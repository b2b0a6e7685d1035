package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"sort"
	"strings"
)

// A CodeRange is contiguous code of one function. Compilers split functions: GCC moves code that it
// thinks runs rarely into a part of its own (-freorder-blocks-and-partition, NAME.cold).
type CodeRange struct {
	Start, End uint64 // virtual addresses, End excluded
	// Cold is set if the frame of the function stands already where the range starts. Such code is
	// jumped to, never called.
	Cold bool
}

// FDERange returns the range of the frame description entry (FDE) in .eh_frame that covers a
// virtual address. ok is false if none does, or if the entry has a form that today's tools do not
// write.
//
// The format: DWARF 5, section 6.4, with the changes of
// https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/ehframechpt.html
func (f *File) FDERange(vaddr uint64) (r CodeRange, ok bool) {
	at, ok := f.image.findFDE(vaddr)
	if !ok {
		return CodeRange{}, false
	}

	fde, ok := f.image.frameEntry(at)
	if !ok || len(fde) < 4 {
		return CodeRange{}, false
	}

	back := uint64(binary.LittleEndian.Uint32(fde)) // distance to the CIE; 0 makes this one itself
	cie, ok := f.image.frameEntry(at + 4 - back)
	if !ok || back == 0 {
		return CodeRange{}, false
	}

	size, instructions, ok := parseCIE(cie)
	if !ok {
		return CodeRange{}, false
	}

	d := dwarf{fde[4:]}
	start := at + 8 + d.signed(size) // initial_location, relative to its place
	r = CodeRange{Start: start, End: start + d.fixed(size)}
	d.skip(d.uleb()) // augmentation data

	// In a PLT entry the frame may be a word larger than at a function's entry: it pushes one.
	const word = 8
	var rule cfaRule
	entry := entryRules[f.image.machine]
	r.Cold = rule.run(instructions) && rule.run(d.rest) &&
		(rule.register != entry.register || rule.offset > entry.offset+word)

	return r, r.Start <= vaddr && vaddr < r.End
}

// ColdRanges returns the cold parts of a function, which .symtab names FUNCTION.cold. There are
// none if the file is stripped of that.
func (f *File) ColdRanges(function string) []CodeRange {
	var ranges []CodeRange
	f.image.each(f.image.symtab, func(entry, name []byte) {
		if s, ok := decode(entry); ok && bytes.HasPrefix(name, []byte(function+".cold")) {
			ranges = append(ranges, CodeRange{s.value, s.end() + 1, true})
		}
	})

	return ranges
}

// entryRules hold the canonical frame address at the entry of a function, by the ABI.
var entryRules = map[elf.Machine]cfaRule{
	elf.EM_X86_64:  {register: 7, offset: 8}, // rsp, below which the call pushed the return address
	elf.EM_AARCH64: {register: 31},           // sp
}

// Pointer encodings, DW_EH_PE_*:
// https://refspecs.linuxfoundation.org/LSB_5.0.0/LSB-Core-generic/LSB-Core-generic/dwarfext.html
const (
	encodingUdata4  = 0x03
	encodingSdata4  = 0x0b
	encodingSdata8  = 0x0c
	encodingPCRel   = 0x10
	encodingDataRel = 0x30 // to the start of .eh_frame_hdr
)

// encodedSize returns the size of an encoded pointer in bytes.
func encodedSize(encoding uint64) int {
	if format := encoding & 7; format == encodingUdata4 {
		return 4
	}
	return 8
}

// findFDE returns the address of the FDE for a virtual address, by binary search in the table of
// .eh_frame_hdr: rows of the first address and the address of the FDE.
func (m *image) findFDE(vaddr uint64) (uint64, bool) {
	const headerSize, rowSize = 12, 8
	base := m.frames.Vaddr
	header, err := m.bytes(span{m.frames.Off, headerSize}, headerSize)
	if err != nil || header[0] != 1 || header[2] != encodingUdata4 ||
		header[3] != encodingDataRel|encodingSdata4 {
		return 0, false
	}

	count := uint64(binary.LittleEndian.Uint32(header[8:]))
	rows := span{m.frames.Off + headerSize, count * rowSize}
	if m.check(rows, m.frames.Filesz) != nil {
		return 0, false
	}

	address := func(row int, column uint64) uint64 {
		word, _ := m.word32(rows.off + uint64(row)*rowSize + column)
		return base + uint64(int64(int32(word)))
	}

	i := sort.Search(int(count), func(i int) bool { return address(i, 0) > vaddr })
	if i == 0 {
		return 0, false
	}

	return address(i-1, 4), true
}

// frameEntry reads the CIE or FDE at a virtual address, without its length.
func (m *image) frameEntry(vaddr uint64) ([]byte, bool) {
	for _, s := range m.loads {
		if vaddr < s.Vaddr || vaddr-s.Vaddr >= s.Filesz {
			continue
		}

		at := s.Off + vaddr - s.Vaddr
		size, ok := m.word32(at)
		if !ok {
			return nil, false
		}

		buf, err := m.bytes(span{at + 4, uint64(size)}, maxFrame)
		return buf, err == nil
	}

	return nil, false
}

// parseCIE decodes a common information entry: the bytes that addresses take in the FDEs that
// share it, and its initial instructions. ok is false if addresses are not relative to their
// place.
func parseCIE(cie []byte) (addressSize int, instructions []byte, ok bool) {
	d := dwarf{cie}
	id, version := d.fixed(4), d.fixed(1)
	augmentation := d.text()
	if id != 0 || version != 1 && version != 3 || !strings.HasPrefix(augmentation, "z") {
		return 0, nil, false
	}

	d.uleb() // code_alignment_factor
	d.uleb() // data_alignment_factor
	d.uleb() // return_address_register: a byte in version 1, the same as LEB128 below 128
	data := dwarf{d.take(d.uleb())}

	encoding := uint64(0)
	for _, letter := range augmentation[1:] {
		switch letter {
		case 'R':
			encoding = data.fixed(1)
		case 'L':
			data.fixed(1)
		case 'P':
			data.skip(uint64(encodedSize(data.fixed(1))))
		case 'S', 'B': // signal frame, return address signed with the B key: without data
		default:
			return 0, nil, false
		}
	}

	if encoding != encodingPCRel|encodingSdata4 && encoding != encodingPCRel|encodingSdata8 {
		return 0, nil, false
	}

	return encodedSize(encoding), d.rest, true
}

// A cfaRule computes the canonical frame address (CFA): the value of a register plus an offset in
// bytes.
type cfaRule struct{ register, offset uint64 }

// registerExpression is the register if a DWARF expression gives the CFA.
const registerExpression = ^uint64(0)

// Call frame instructions, DW_CFA_* (DWARF 5, section 7.24): those that set the CFA, and those
// that move on to another address.
const (
	cfaSetLoc           = 0x01
	cfaAdvanceLoc4      = 0x04
	cfaDefCFA           = 0x0c
	cfaDefCFARegister   = 0x0d
	cfaDefCFAOffset     = 0x0e
	cfaDefCFAExpression = 0x0f
	cfaAdvanceLoc       = 1 // in the two highest bits, like the next two
	cfaOffset           = 2
	cfaRestore          = 3
)

// otherOperands lists the operands of the other instructions: 'u' for a LEB128 number, 'b' for a
// block.
var otherOperands = map[uint64]string{
	0x00: "",   // DW_CFA_nop
	0x05: "uu", // DW_CFA_offset_extended
	0x06: "u",  // DW_CFA_restore_extended
	0x07: "u",  // DW_CFA_undefined
	0x08: "u",  // DW_CFA_same_value
	0x09: "uu", // DW_CFA_register
	0x0a: "",   // DW_CFA_remember_state
	0x0b: "",   // DW_CFA_restore_state
	0x10: "ub", // DW_CFA_expression
	0x11: "uu", // DW_CFA_offset_extended_sf
	0x14: "uu", // DW_CFA_val_offset
	0x15: "uu", // DW_CFA_val_offset_sf
	0x16: "ub", // DW_CFA_val_expression
	0x2d: "",   // DW_CFA_GNU_window_save, DW_CFA_AARCH64_negate_ra_state
	0x2e: "u",  // DW_CFA_GNU_args_size
}

// run applies the instructions that hold where the code starts: up to the first that moves on to
// another address. ok is false if one of them is not known.
func (c *cfaRule) run(instructions []byte) (ok bool) {
	d := dwarf{instructions}
	for len(d.rest) > 0 {
		switch op := d.fixed(1); {
		case op>>6 == cfaAdvanceLoc, op >= cfaSetLoc && op <= cfaAdvanceLoc4:
			return true
		case op>>6 == cfaOffset:
			d.uleb()
		case op>>6 == cfaRestore:
		case op == cfaDefCFA:
			c.register, c.offset = d.uleb(), d.uleb()
		case op == cfaDefCFARegister:
			c.register = d.uleb()
		case op == cfaDefCFAOffset:
			c.offset = d.uleb()
		case op == cfaDefCFAExpression:
			c.register = registerExpression
			d.skip(d.uleb())
		default:
			operands, known := otherOperands[op]
			if !known {
				return false
			}

			d.operands(operands)
		}
	}

	return true
}

// A dwarf decodes numbers and strings of DWARF. Bytes beyond the end read as 0.
type dwarf struct{ rest []byte }

// take returns the next n bytes, or as many as there are.
func (d *dwarf) take(n uint64) []byte {
	n = min(n, uint64(len(d.rest)))
	head := d.rest[:n]
	d.rest = d.rest[n:]
	return head
}

func (d *dwarf) skip(n uint64) { d.take(n) }

// fixed reads an unsigned number of up to 8 bytes.
func (d *dwarf) fixed(size int) uint64 {
	var word [8]byte
	copy(word[:], d.take(uint64(size)))
	return binary.LittleEndian.Uint64(word[:])
}

// signed reads a signed number of 4 or 8 bytes, and returns it modulo 2^64.
func (d *dwarf) signed(size int) uint64 {
	if size == 4 {
		return uint64(int64(int32(d.fixed(4))))
	}
	return d.fixed(8)
}

// uleb reads an unsigned LEB128 number, modulo 2^64. A signed one takes as many bytes.
func (d *dwarf) uleb() (value uint64) {
	for shift := 0; len(d.rest) > 0; shift += 7 {
		b := d.fixed(1)
		value |= b & 0x7f << shift
		if b&0x80 == 0 {
			break
		}
	}

	return value
}

// text reads up to a zero byte.
func (d *dwarf) text() string {
	head, rest, _ := bytes.Cut(d.rest, []byte{0})
	d.rest = rest
	return string(head)
}

// operands skips the operands of an instruction.
func (d *dwarf) operands(kinds string) {
	for _, kind := range kinds {
		size := d.uleb()
		if kind == 'b' {
			d.skip(size)
		}
	}
}
