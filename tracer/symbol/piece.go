package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"sort"
	"strings"
)

// A Piece is code of one function that lies in one place.
type Piece struct {
	Start, End uint64 // virtual addresses, End excluded
	// Inner tells that the function's frame stands where the piece starts, so that the function is not called there:
	// what the compiler has moved away from the rest of the function.
	Inner bool
}

// Piece finds the piece of code that holds a virtual address, by the unwind information of the file. ok is false where
// that does not cover the address or is of a form that today's tools do not write.
func (f *File) Piece(vaddr uint64) (p Piece, ok bool) {
	at, ok := f.image.frameOf(vaddr)
	if !ok {
		return Piece{}, false
	}
	frame, ok := f.image.entry(at)
	if !ok || len(frame) < 4 {
		return Piece{}, false
	}
	back := uint64(binary.LittleEndian.Uint32(frame)) // the distance to the common entry
	common, ok := f.image.entry(at + 4 - back)
	if !ok || back == 0 {
		return Piece{}, false
	}
	size, rules, ok := commonEntry(common)
	if !ok {
		return Piece{}, false
	}
	r := dwarf{frame[4:]}
	start := at + 8 + r.signed(size)
	p = Piece{Start: start, End: start + r.fixed(size)}
	r.skip(r.uleb()) // augmentation data
	var first frameRule
	entry := entryRules[f.image.machine]
	const word = 8 // that a PLT pushes
	p.Inner = first.run(rules) && first.run(r.rest) && (first.register != entry.register || first.offset > entry.offset+word)
	return p, p.Start <= vaddr && vaddr < p.End
}

// ColdPieces gives the pieces of a function that the compiler has moved away, as .symtab names them: none if the file is
// stripped of that.
func (f *File) ColdPieces(function string) []Piece {
	var pieces []Piece
	f.image.each(f.image.symtab, func(entry, name []byte) {
		if s, ok := decode(entry); ok && bytes.HasPrefix(name, []byte(function+".cold")) {
			pieces = append(pieces, Piece{s.value, s.end() + 1, true})
		}
	})
	return pieces
}

// entryRules say where the canonical frame address is when a function is entered.
var entryRules = map[elf.Machine]frameRule{
	elf.EM_X86_64:  {register: 7, offset: 8}, // rsp
	elf.EM_AARCH64: {register: 31},           // sp
}

// Encodings of addresses (Linux Standard Base, "DWARF Exception Header Encoding").
const (
	encodingSigned4 = 0x0b
	encodingSigned8 = 0x0c
	relativeToPlace = 0x10
	relativeToTable = 0x30
)

// frameOf finds the address of the frame description entry for an address, by binary search in .eh_frame_hdr.
func (m *image) frameOf(vaddr uint64) (uint64, bool) {
	const headerSize, rowSize = 12, 8
	base := m.frames.Vaddr
	header, err := m.bytes(span{m.frames.Off, headerSize}, headerSize)
	if err != nil || header[0] != 1 || header[2] != 3 || header[3] != relativeToTable|encodingSigned4 {
		return 0, false
	}
	count := uint64(binary.LittleEndian.Uint32(header[8:]))
	rows := span{m.frames.Off + headerSize, count * rowSize}
	if m.check(rows, m.frames.Filesz) != nil {
		return 0, false
	}
	address := func(i int, at uint64) uint64 {
		word, _ := m.word32(rows.off + uint64(i)*rowSize + at)
		return base + uint64(int64(int32(word)))
	}
	i := sort.Search(int(count), func(i int) bool { return address(i, 0) > vaddr })
	if i == 0 {
		return 0, false
	}
	return address(i-1, 4), true
}

// entry reads an entry of .eh_frame at a virtual address, without its length.
func (m *image) entry(vaddr uint64) ([]byte, bool) {
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

// commonEntry decodes a common information entry: the bytes that addresses take in the entries that share it, and their
// first rules. ok is false where addresses are not relative to their place.
func commonEntry(entry []byte) (addressSize int, rules []byte, ok bool) {
	r := dwarf{entry}
	id, version := r.fixed(4), r.fixed(1)
	augmentation := r.text()
	if id != 0 || version != 1 && version != 3 || !strings.HasPrefix(augmentation, "z") {
		return 0, nil, false
	}
	r.uleb() // alignment of code
	r.uleb() // alignment of data
	r.uleb() // register of the return address: below 128 in all versions, so that a byte is a LEB128
	data := dwarf{r.take(r.uleb())}
	encoding := uint64(0)
	for _, letter := range augmentation[1:] {
		switch letter {
		case 'R':
			encoding = data.fixed(1)
		case 'L':
			data.fixed(1)
		case 'P':
			data.skip(uint64(encodedSize(data.fixed(1))))
		case 'S', 'B': // say something without data
		default:
			return 0, nil, false
		}
	}
	if encoding != relativeToPlace|encodingSigned4 && encoding != relativeToPlace|encodingSigned8 {
		return 0, nil, false
	}
	return encodedSize(encoding), r.rest, true
}

// encodedSize is the size of an address in bytes.
func encodedSize(encoding uint64) int {
	if low := encoding & 7; low == 3 {
		return 4
	}
	return 8
}

// Bias gives what to add to virtual addresses of the file to get addresses of a process that maps the file, executable, at
// start from a file offset on. ok is false if no executable segment is at that offset.
func (f *File) Bias(start, offset uint64) (bias uint64, ok bool) {
	const page = 1 << 12 // segments begin anywhere in their first page
	for _, s := range f.image.loads {
		if elf.ProgFlag(s.Flags)&elf.PF_X != 0 && s.Off&^(page-1) <= offset && offset < s.Off+s.Filesz {
			return start - offset + s.Off - s.Vaddr, true
		}
	}
	return 0, false
}
