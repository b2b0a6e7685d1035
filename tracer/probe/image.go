package probe

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// An image is what is needed of an ELF file that may be hostile. Its headers are read once. debug/elf is not used for it:
// a small file can make it read and keep as much as it likes (compressed names, overlapping version definitions).
type image struct {
	file     io.ReaderAt
	machine  elf.Machine
	segments []elf.Prog64
	sections []elf.Section64
}

// Bounds on what a file can make us read. Its numbers of segments and sections have 16 bits.
const (
	maxTableBytes = 256 << 20 // of a table of symbols or of names
	maxName       = 64        // bytes of a name that are looked at
)

var errNotELF = errors.New("not an ELF file of this kind of machine")

// readImage reads the headers of a 64-bit file. It is Err32Bit for a 32-bit one.
func readImage(file io.ReaderAt) (*image, error) {
	var header elf.Header64
	if err := readAt(file, 0, &header); err != nil {
		return nil, err
	}
	switch {
	case string(header.Ident[:4]) != elf.ELFMAG, elf.Data(header.Ident[elf.EI_DATA]) != elf.ELFDATA2LSB:
		return nil, errNotELF
	case elf.Class(header.Ident[elf.EI_CLASS]) == elf.ELFCLASS32:
		return nil, Err32Bit
	case header.Phnum > 0 && header.Phentsize != 56, header.Shnum > 0 && header.Shentsize != 64:
		return nil, errNotELF
	}
	m := &image{
		file: file, machine: elf.Machine(header.Machine),
		segments: make([]elf.Prog64, header.Phnum), sections: make([]elf.Section64, header.Shnum),
	}
	return m, errors.Join(readAt(file, header.Phoff, m.segments), readAt(file, header.Shoff, m.sections))
}

// readAt fills a value of fixed size.
func readAt(file io.ReaderAt, offset uint64, value any) error {
	raw := make([]byte, binary.Size(value))
	if n, err := file.ReadAt(raw, int64(offset)); n < len(raw) {
		return fmt.Errorf("read %d bytes at %#x: %w", len(raw), offset, err)
	}
	_, err := binary.Decode(raw, binary.LittleEndian, value)
	return err
}

// functions gives the addresses of those functions of a symbol table that are wanted. Of a local name there must be one.
func (m *image) functions(kind elf.SectionType, wanted map[string]bool) (map[string]uint64, error) {
	symbols, names, err := m.symbolTable(kind)
	if err != nil {
		return nil, err
	}
	defined, local := make(map[string]uint64), make(map[string][]uint64)
	for ; len(symbols) >= elf.Sym64Size; symbols = symbols[elf.Sym64Size:] {
		s := decodeSymbol(symbols)
		if elf.ST_TYPE(s.Info) != elf.STT_FUNC || elf.SectionIndex(s.Shndx) == elf.SHN_UNDEF {
			continue
		}
		name := nameAt(names, s.Name)
		if !wanted[string(name)] {
			continue
		}
		if elf.ST_BIND(s.Info) == elf.STB_LOCAL {
			local[string(name)] = append(local[string(name)], s.Value)
		} else if _, ok := defined[string(name)]; !ok {
			defined[string(name)] = s.Value
		}
	}
	for name, addresses := range local { // the linker makes the C library's functions local in a static-pie program
		if _, ok := defined[name]; !ok && len(addresses) == 1 {
			defined[name] = addresses[0]
		}
	}
	return defined, nil
}

// decodeSymbol is binary.Decode without its price: a program may have a million.
func decodeSymbol(raw []byte) elf.Sym64 {
	return elf.Sym64{
		Name: binary.LittleEndian.Uint32(raw), Info: raw[4], Shndx: binary.LittleEndian.Uint16(raw[6:]),
		Value: binary.LittleEndian.Uint64(raw[8:]),
	}
}

// symbolTable reads the first table of a kind and its names; both are empty if there is none.
func (m *image) symbolTable(kind elf.SectionType) (symbols, names []byte, err error) {
	for _, s := range m.sections {
		if elf.SectionType(s.Type) != kind {
			continue
		}
		if s.Entsize != elf.Sym64Size || uint64(s.Link) >= uint64(len(m.sections)) {
			return nil, nil, fmt.Errorf("%s: %w", kind, errNotELF)
		}
		if symbols, err = m.contents(s); err != nil {
			return nil, nil, err
		}
		names, err = m.contents(m.sections[s.Link])
		return symbols, names, err
	}
	return nil, nil, nil
}

func (m *image) contents(s elf.Section64) ([]byte, error) {
	if s.Size > maxTableBytes || elf.SectionFlag(s.Flags)&elf.SHF_COMPRESSED != 0 {
		return nil, fmt.Errorf("%s of %d bytes, flags %#x", elf.SectionType(s.Type), s.Size, s.Flags)
	}
	return io.ReadAll(io.NewSectionReader(m.file, int64(s.Off), int64(s.Size)))
}

func nameAt(names []byte, offset uint32) []byte {
	if uint64(offset) >= uint64(len(names)) {
		return nil
	}
	name, _, _ := bytes.Cut(names[offset:min(uint64(offset)+maxName, uint64(len(names)))], []byte{0})
	return name
}

// code reads the first bytes of the function at an address, and tells where they lie in the file.
func (m *image) code(address uint64) (code []byte, offset uint64, err error) {
	for _, s := range m.segments {
		at := address - s.Vaddr
		if elf.ProgType(s.Type) != elf.PT_LOAD || elf.ProgFlag(s.Flags)&elf.PF_X == 0 || address < s.Vaddr || at >= s.Filesz {
			continue
		}
		code = make([]byte, min(codeLength, s.Filesz-at))
		n, err := m.file.ReadAt(code, int64(s.Off+at))
		if n == 0 {
			return nil, 0, fmt.Errorf("read code at %#x: %w", s.Off+at, err)
		}
		return code[:n], s.Off + at, nil
	}
	return nil, 0, fmt.Errorf("address %#x is in no executable segment", address)
}
