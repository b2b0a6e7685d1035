package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

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
			if uint64(s.Link) < uint64(len(sections)) && elf.SectionType(sections[s.Link].Type) == elf.SHT_DYNSYM && len(m.imports) < maxRelocated {
				m.imports = append(m.imports, span{s.Off, s.Size})
			}
		case elf.SHT_GNU_HASH:
			m.hash = span{s.Off, s.Size}
		case elf.SHT_NOTE:
			m.notes = append(m.notes, note{span{s.Off, s.Size}, s.Addralign})
		}
	}
	return errors.Join(err, m.findLink(sections, int(h.Shstrndx)))
}

// set makes t the symbol table s, unless an earlier section was one.
func (t *symbolSection) set(sections []elf.Section64, s elf.Section64) error {
	if t.size() > 0 {
		return nil
	}
	kind := elf.SectionType(s.Type)
	if s.Entsize != elf.Sym64Size {
		return fmt.Errorf("%s: entries of %d bytes are not supported (%d are)", kind, s.Entsize, elf.Sym64Size)
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

// findLink finds the section .gnu_debuglink; names is the index of the section
// that holds the section names.
func (m *image) findLink(sections []elf.Section64, names int) error {
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
	want := []byte(debugLinkSection + "\x00")
	for _, s := range sections {
		if elf.SectionType(s.Type) == elf.SHT_PROGBITS &&
			uint64(s.Name) < uint64(len(table)) && bytes.HasPrefix(table[s.Name:], want) {
			m.link = span{s.Off, s.Size}
			return nil
		}
	}
	return nil
}
