package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// An image is what the headers of an ELF file say, checked against the file's
// size. debug/elf.NewFile is not used: it reads tables as large as the file
// claims and keeps an object for every section.
//
// The format: https://gabi.xinuos.com/ (System V ABI, chapters 4 and 5).
type image struct {
	r       io.ReaderAt
	size    uint64 // bytes
	machine elf.Machine
	loads   []elf.Prog64 // PT_LOAD
	notes   []note       // sections first: the program headers of debug files name offsets of another file
	symtab  symbolSection
	dynsym  symbolSection
	imports []span     // relocations that name symbols of .dynsym
	hash    span       // .gnu.hash: finds symbols of .dynsym; empty if there is none
	frames  elf.Prog64 // PT_GNU_EH_FRAME: finds the unwind information of a function; zero if there is none
	link    span       // .gnu_debuglink; empty if there is none
	buildID string
	damage  error // why sections or notes were not read
}

// Err32Bit is the refusal of a 32-bit file.
var Err32Bit = errors.New("a 32-bit program")

// A span is a range of a file, in bytes.
type span struct{ off, size uint64 }

// A symbolSection is a symbol table and the names it refers to; empty if the
// file has none.
type symbolSection struct{ symbols, names span }

func (s symbolSection) size() uint64 { return s.symbols.size }

// newImage reads the headers of an ELF file of size bytes. Damaged sections and
// notes are not an error: the program headers serve without them.
func newImage(r io.ReaderAt, size int64) (*image, error) {
	m := &image{r: r, size: uint64(max(size, 0))}
	header, err := m.header()
	if err != nil {
		return nil, fmt.Errorf("read ELF header: %w", err)
	}
	m.machine = elf.Machine(header.Machine)
	segments, err := m.segments(header)
	if err != nil {
		return nil, fmt.Errorf("read program headers: %w", err)
	}
	if err := m.readSections(header); err != nil {
		m.damage = fmt.Errorf("read sections: %w", err)
	}
	for _, s := range segments {
		switch elf.ProgType(s.Type) {
		case elf.PT_LOAD:
			m.loads = append(m.loads, s)
		case elf.PT_NOTE:
			m.notes = append(m.notes, note{span{s.Off, s.Filesz}, s.Align})
		case elf.PT_GNU_EH_FRAME:
			m.frames = s
		}
	}
	m.buildID = m.findBuildID()
	return m, nil
}

// header reads and checks the ELF header.
func (m *image) header() (elf.Header64, error) {
	var h elf.Header64
	size := uint64(binary.Size(h))
	buf, err := m.bytes(span{0, size}, size)
	if err != nil {
		return h, err
	}
	if !bytes.HasPrefix(buf, []byte(elf.ELFMAG)) {
		return h, errors.New("not an ELF file")
	}
	class, data := elf.Class(buf[elf.EI_CLASS]), elf.Data(buf[elf.EI_DATA])
	if class == elf.ELFCLASS32 && data == elf.ELFDATA2LSB {
		return h, Err32Bit
	}
	if class != elf.ELFCLASS64 || data != elf.ELFDATA2LSB {
		return h, fmt.Errorf("%s %s is not supported (64-bit little-endian files are)", class, data)
	}
	if _, err := binary.Decode(buf, binary.LittleEndian, &h); err != nil {
		return h, err
	}
	if t := elf.Type(h.Type); t != elf.ET_EXEC && t != elf.ET_DYN {
		return h, fmt.Errorf("%s is neither an executable nor a shared object", t)
	}
	return h, nil
}

// segments reads the program headers.
func (m *image) segments(h elf.Header64) ([]elf.Prog64, error) {
	if h.Phnum == 0 {
		return nil, nil
	}
	entry := binary.Size(elf.Prog64{})
	if int(h.Phentsize) != entry {
		return nil, fmt.Errorf("entries of %d bytes are not supported (%d are)", h.Phentsize, entry)
	}
	buf, err := m.bytes(span{h.Phoff, uint64(h.Phnum) * uint64(entry)}, maxSegments*uint64(entry))
	if err != nil {
		return nil, err
	}
	segments := make([]elf.Prog64, h.Phnum)
	_, err = binary.Decode(buf, binary.LittleEndian, segments)
	return segments, err
}

// bytes reads s, at most limit bytes, from the file.
func (m *image) bytes(s span, limit uint64) ([]byte, error) {
	if err := m.check(s, limit); err != nil {
		return nil, err
	}
	buf := make([]byte, s.size)
	if n, err := m.r.ReadAt(buf, int64(s.off)); n < len(buf) {
		return nil, fmt.Errorf("read %d bytes at offset %d: %w", len(buf), s.off, err)
	}
	return buf, nil
}

// check tells whether s lies in the file and has at most limit bytes.
func (m *image) check(s span, limit uint64) error {
	if s.off > m.size || s.size > m.size-s.off {
		return fmt.Errorf("%d bytes at offset %d lie outside the file of %d bytes", s.size, s.off, m.size)
	}
	if s.size > limit {
		return fmt.Errorf("%d bytes exceed the limit of %d", s.size, limit)
	}
	return nil
}
