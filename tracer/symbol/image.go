package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/allocscope/allocscope/tracer/mem"
)

// An image has the facts in the headers of an ELF file, checked against the file's size.
// debug/elf.NewFile is not used: it reads tables as large as the file claims and keeps an object
// for every section.
//
// The format: https://gabi.xinuos.com/ (System V ABI, chapters 4 and 5).
type image struct {
	r       io.ReaderAt
	size    uint64 // bytes
	machine elf.Machine
	loads   []elf.Prog64 // PT_LOAD
	notes   []note       // sections first: segments of debug files have offsets of another file
	symtab  symbolSection
	dynsym  symbolSection
	imports []span     // relocations that name symbols of .dynsym
	hash    span       // .gnu.hash: finds symbols of .dynsym; empty if there is none
	frames  elf.Prog64 // PT_GNU_EH_FRAME: finds the FDE of a function; zero if there is none
	link    span       // .gnu_debuglink; empty if there is none
	mini    span       // .gnu_debugdata; empty if there is none
	buildID string

	probeBase uint64 // address of .stapsdt.base; 0: there is none

	constants, goBuild span // .rodata and .go.buildinfo; empty if there is none

	damage error // why sections or notes were not read

	tableBytes uint64 // of symbol tables that symbolTable has read
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
	m := &image{r: &blockReader{r: r}, size: uint64(max(size, 0))}
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

// check reports whether s lies in the file and has at most limit bytes.
func (m *image) check(s span, limit uint64) error {
	if s.off > m.size || s.size > m.size-s.off {
		return fmt.Errorf("%d bytes at offset %d lie outside the file of %d bytes", s.size, s.off,
			m.size)
	}
	if s.size > limit {
		return fmt.Errorf("%d bytes exceed the limit of %d", s.size, limit)
	}
	return nil
}

func (m *image) word32(offset uint64) (uint32, bool) {
	buf, err := m.bytes(span{offset, 4}, 4)
	if err != nil {
		return 0, false
	}
	return binary.LittleEndian.Uint32(buf), true
}

func (m *image) word64(offset uint64) (uint64, bool) {
	buf, err := m.bytes(span{offset, 8}, 8)
	if err != nil {
		return 0, false
	}
	return binary.LittleEndian.Uint64(buf), true
}

// debugLinkSection names the debug file of a stripped file:
// https://sourceware.org/gdb/current/onlinedocs/gdb.html/Separate-Debug-Files.html
const debugLinkSection = ".gnu_debuglink"

// readSections finds the sections that hold symbols, notes and the debug link.
func (m *image) readSections(h elf.Header64) error {
	if h.Shoff == 0 || h.Shnum == 0 {
		return nil // all section headers are stripped
	}

	entry := binary.Size(elf.Section64{})
	if int(h.Shentsize) != entry {
		return fmt.Errorf("entries of %d bytes are not supported (%d are)", h.Shentsize, entry)
	}

	buf, err := m.bytes(span{h.Shoff, uint64(h.Shnum) * uint64(entry)}, maxSections*uint64(entry))
	if err != nil {
		return err
	}

	sections := make([]elf.Section64, h.Shnum)
	if _, err := binary.Decode(buf, binary.LittleEndian, sections); err != nil {
		return err
	}

	for _, s := range sections {
		switch elf.SectionType(s.Type) {
		case elf.SHT_SYMTAB:
			err = errors.Join(err, m.symtab.set(sections, s))
		case elf.SHT_DYNSYM:
			err = errors.Join(err, m.dynsym.set(sections, s))
		case elf.SHT_RELA:
			if uint64(s.Link) < uint64(len(sections)) &&
				elf.SectionType(sections[s.Link].Type) == elf.SHT_DYNSYM &&
				len(m.imports) < maxRelocated {
				m.imports = append(m.imports, span{s.Off, s.Size})
			}
		case elf.SHT_GNU_HASH:
			m.hash = span{s.Off, s.Size}
		case elf.SHT_NOTE:
			m.notes = append(m.notes, note{span{s.Off, s.Size}, s.Addralign})
		}
	}

	return errors.Join(err, m.findNamed(sections, int(h.Shstrndx)))
}

// set makes t the symbol table s, unless an earlier section was one.
func (t *symbolSection) set(sections []elf.Section64, s elf.Section64) error {
	if t.size() > 0 {
		return nil
	}

	kind := elf.SectionType(s.Type)
	if s.Entsize != elf.Sym64Size {
		return fmt.Errorf("%s: entries of %d bytes are not supported (%d are)", kind, s.Entsize,
			elf.Sym64Size)
	}
	if uint64(s.Link) >= uint64(len(sections)) {
		return fmt.Errorf("%s: names in section %d of %d", kind, s.Link, len(sections))
	}

	names := sections[s.Link]
	if t := elf.SectionType(names.Type); t != elf.SHT_STRTAB {
		return fmt.Errorf("%s: names in a section of type %s", kind, t)
	}
	if elf.SectionFlag(s.Flags|names.Flags)&elf.SHF_COMPRESSED != 0 {
		return fmt.Errorf("%s: compressed", kind)
	}

	*t = symbolSection{span{s.Off, s.Size}, span{names.Off, names.Size}}
	return nil
}

// findNamed finds the sections that only their names show; names is the index of the section
// that holds these.
func (m *image) findNamed(sections []elf.Section64, names int) error {
	if names == int(elf.SHN_UNDEF) {
		return nil
	}
	if names >= len(sections) {
		return fmt.Errorf("section names: in section %d of %d", names, len(sections))
	}

	table, err := m.bytes(span{sections[names].Off, sections[names].Size}, maxSectionName)
	if err != nil {
		return fmt.Errorf("section names: %w", err)
	}

	for _, s := range sections {
		if elf.SectionType(s.Type) != elf.SHT_PROGBITS || uint64(s.Name) >= uint64(len(table)) {
			continue
		}
		isNamed := func(name string) bool {
			return bytes.HasPrefix(table[s.Name:], []byte(name+"\x00"))
		}
		switch {
		case isNamed(debugLinkSection) && m.link.size == 0:
			m.link = span{s.Off, s.Size}
		case isNamed(miniDebugSection):
			m.mini = span{s.Off, s.Size}
		case isNamed(probeBaseSection):
			m.probeBase = s.Addr
		case isNamed(".rodata"):
			m.constants = span{s.Off, s.Size}
		case isNamed(".go.buildinfo"):
			m.goBuild = span{s.Off, s.Size}
		}
	}

	return nil
}

// A note is a section or segment of notes.
type note struct {
	span
	align uint64 // bytes: 8, or anything else for 4
}

// findBuildID returns the first GNU build ID among the notes, "" if there is
// none. The note: https://fedoraproject.org/wiki/Releases/FeatureBuildId
func (m *image) findBuildID() string {
	for i, n := range m.notes {
		if i == maxNotes {
			break
		}

		buf, err := m.bytes(n.span, maxNote)
		if err != nil {
			continue // names a note in a file that this one was split from, or is damaged
		}
		if id := buildID(buf, n.align); len(id) >= 2 && len(id) <= maxBuildID {
			return hex.EncodeToString(id)
		}
	}

	return ""
}

// buildID returns the description of the first NT_GNU_BUILD_ID note in buf, nil
// if there is none.
func buildID(buf []byte, align uint64) []byte {
	const typeBuildID = 3 // NT_GNU_BUILD_ID in elf.h
	for kind, desc := range notesOf(buf, align, "GNU") {
		if kind == typeBuildID {
			return desc
		}
	}
	return nil
}

// notesOf yields the type and the description of each note of an owner in buf. Note layout: elf(5),
// "Notes (Nhdr)".
func notesOf(buf []byte, align uint64, owner string) iter.Seq2[uint32, []byte] {
	const header = 12 // bytes of Elf64_Nhdr
	if align != 8 {
		align = 4
	}

	return func(yield func(uint32, []byte) bool) {
		for len(buf) >= header {
			nameSize := uint64(binary.LittleEndian.Uint32(buf))
			descSize := uint64(binary.LittleEndian.Uint32(buf[4:]))
			kind := binary.LittleEndian.Uint32(buf[8:])
			desc := mem.AlignUp(header+nameSize, align)
			if desc+descSize > uint64(len(buf)) {
				return
			}
			if string(buf[header:header+nameSize]) == owner+"\x00" &&
				!yield(kind, buf[desc:desc+descSize]) {
				return
			}

			buf = buf[min(mem.AlignUp(desc+descSize, align), uint64(len(buf))):]
		}
	}
}
