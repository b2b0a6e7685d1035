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
func (p *Process) LoadOrder(maps []Mapping) ([]Mapping, error) {
	list := linkMap{p}
	head, err := list.head()
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

// head returns the address of the first link_map (r_map), which the DT_DEBUG entry of the
// program's dynamic section leads to.
func (l linkMap) head() (uint64, error) {
	address, err := l.dynamicSection()
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

// dynamicSection returns the address of the program's dynamic section.
func (l linkMap) dynamicSection() (uint64, error) {
	headers, count, err := l.programHeaders()
	if err != nil {
		return 0, err
	}

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
