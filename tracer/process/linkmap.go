package process

import (
	"debug/elf"
	"encoding/binary"
	"errors"
)

// ErrNoLinkMap means that the process has no list of loaded libraries: it is static, or the dynamic
// linker has not started yet.
var ErrNoLinkMap = errors.New("no dynamic linker's list of libraries")

// Bounds on the data read from the process, whose memory is hostile.
const (
	maxProgramHeaders = 64
	maxDynamicEntries = 1024
	maxLibraries      = 4096
	maxPrograms       = 4096 // mapped files whose headers are read
)

// Sizes of Elf64_Phdr and Elf64_Dyn in bytes.
const (
	programHeaderSize = 56
	dynamicEntrySize  = 16
)

// LoadOrder returns the files of the process's global symbol scope in the dynamic linker's search
// order: the program, preloaded libraries, libraries. Each file is the mapping that contains its
// dynamic section. LoadOrder follows the linker's own list, struct r_debug and struct link_map of
// <link.h>, in the memory of the process. A process may forge it: each file is once in the result.
//
// Where the program was started by the dynamic linker, as in "ld-linux.so.2 PROGRAM", /proc/PID/exe
// is the linker, and the first file is the program all the same.
func (p *Process) LoadOrder(maps []Mapping) ([]Mapping, error) {
	list := linkMap{p}
	head, err := list.find(maps)
	if err != nil {
		return nil, err
	}

	var order []Mapping
	seen := make(map[FileID]bool)
	for next, n := head, 0; next != 0 && n < maxLibraries; n++ {
		var entry struct{ Addr, Name, Ld, Next, Prev uint64 } // struct link_map
		if err := list.read(next, &entry); err != nil {
			return nil, err
		}
		if m, ok := FindMapping(maps, entry.Ld); ok && m.IsFile() && !seen[m.File()] {
			seen[m.File()] = true
			order = append(order, m)
		}
		next = entry.Next
	}

	if len(order) == 0 {
		return nil, ErrNoLinkMap
	}
	return order, nil
}

// linkMap reads the dynamic linker's list of a process.
type linkMap struct{ process *Process }

// find returns the address of the first link_map. The program whose headers the kernel has published
// leads to it, or a program that something else has mapped: the dynamic linker, or another loader.
func (l linkMap) find(maps []Mapping) (head uint64, err error) {
	address, count, err := l.programHeaders()
	if err == nil {
		head, err = l.head(address, count)
	}
	if !errors.Is(err, ErrNoLinkMap) {
		return head, err
	}

	seen := make(map[FileID]bool)
	for _, m := range maps {
		if !m.IsFile() || m.Offset != 0 || seen[m.File()] || len(seen) == maxPrograms {
			continue
		}
		seen[m.File()] = true
		if address, count, ok := l.headersOf(m); ok {
			if head, err := l.head(address, count); err == nil {
				return head, nil
			}
		}
	}
	return 0, ErrNoLinkMap
}

// headersOf returns where the program headers of a mapped ELF file lie in memory, from its header.
func (l linkMap) headersOf(m Mapping) (address, count uint64, ok bool) {
	var header elf.Header64
	err := l.read(m.Start, &header)
	isELF := string(header.Ident[:4]) == elf.ELFMAG &&
		elf.Class(header.Ident[elf.EI_CLASS]) == elf.ELFCLASS64
	if err != nil || !isELF || header.Phnum > maxProgramHeaders ||
		header.Phentsize != programHeaderSize {
		return 0, 0, false
	}
	return m.Start + header.Phoff, uint64(header.Phnum), true
}

// head returns the address of the first link_map (r_map), which the DT_DEBUG entry of the dynamic
// section leads to. Only programs have that entry.
func (l linkMap) head(headers, count uint64) (uint64, error) {
	address, err := l.dynamicSection(headers, count)
	if err != nil {
		return 0, err
	}

	for range maxDynamicEntries {
		var entry struct{ Tag, Value uint64 }
		if err := l.read(address, &entry); err != nil {
			return 0, err
		}

		switch {
		case elf.DynTag(entry.Tag) == elf.DT_NULL:
			return 0, ErrNoLinkMap
		case elf.DynTag(entry.Tag) == elf.DT_DEBUG && entry.Value != 0:
			var debug struct{ Version, Map uint64 } // struct r_debug: an int and padding, a pointer
			if err := l.read(entry.Value, &debug); err != nil {
				return 0, err
			}
			return debug.Map, nil
		}
		address += dynamicEntrySize
	}
	return 0, ErrNoLinkMap
}

// dynamicSection returns the address of the dynamic section by the program headers in memory.
func (l linkMap) dynamicSection(headers, count uint64) (uint64, error) {
	var loadBias, dynamic uint64
	var hasPhdr bool
	for i := range count {
		var header elf.Prog64
		if err := l.read(headers+i*programHeaderSize, &header); err != nil {
			return 0, err
		}

		switch kind := elf.ProgType(header.Type); {
		case kind == elf.PT_PHDR:
			loadBias, hasPhdr = headers-header.Vaddr, true
		case kind == elf.PT_LOAD && header.Off == 0 && !hasPhdr:
			// A static-pie program has no PT_PHDR; its headers are in the first page.
			loadBias = headers&^(PageSize-1) - header.Vaddr
		case kind == elf.PT_DYNAMIC:
			dynamic = header.Vaddr
		}
	}

	if dynamic == 0 {
		return 0, ErrNoLinkMap
	}
	return loadBias + dynamic, nil
}

// programHeaders returns where the program's headers lie in memory, from the auxiliary vector.
func (l linkMap) programHeaders() (address, count uint64, err error) {
	raw, err := l.process.read("auxv")
	if err != nil {
		return 0, 0, err
	}

	const atPhdr, atPhnum = 3, 5 // AT_PHDR and AT_PHNUM of <elf.h>
	for ; len(raw) >= 16; raw = raw[16:] {
		kind, value := binary.LittleEndian.Uint64(raw), binary.LittleEndian.Uint64(raw[8:])
		switch kind {
		case atPhdr:
			address = value
		case atPhnum:
			count = value
		}
	}

	if address == 0 || count > maxProgramHeaders {
		return 0, 0, ErrNoLinkMap
	}
	return address, count, nil
}

// read fills value, a pointer to a struct of fixed size, from the memory of the process.
func (l linkMap) read(address uint64, value any) error {
	buffer := make([]byte, binary.Size(value))
	if err := l.process.ReadMemory(address, buffer); err != nil {
		return err
	}
	_, err := binary.Decode(buffer, binary.LittleEndian, value)
	return err
}
