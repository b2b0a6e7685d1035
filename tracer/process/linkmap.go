package process

import (
	"debug/elf"
	"encoding/binary"
	"errors"
)

// ErrNoLinkMap means that the process has no list of loaded libraries: it is static, or has not started yet.
var ErrNoLinkMap = errors.New("no dynamic linker's list of libraries")

// Bounds on what is read from the process.
const (
	maxProgramHeaders = 64
	maxDynamicEntries = 1024
	maxLibraries      = 4096
)

const minPageSize = 4096

// LoadOrder gives the files of the process's global symbol scope in the order in which the dynamic linker searches them:
// the program, preloaded libraries, libraries. Each file is the mapping that holds its dynamic section. It follows the
// linker's own list (struct r_debug and struct link_map, <link.h>), read from the memory of the process.
func (p *Process) LoadOrder(maps []Mapping) ([]Mapping, error) {
	head, err := p.linkMapHead()
	if err != nil {
		return nil, err
	}
	var order []Mapping
	for next, n := head, 0; next != 0 && n < maxLibraries; n++ {
		var entry struct{ Base, Name, Dynamic, Next, Previous uint64 }
		if err := p.readMemory(next, &entry); err != nil {
			return nil, err
		}
		if m, ok := Find(maps, entry.Dynamic); ok && m.IsFile() {
			order = append(order, m)
		}
		next = entry.Next
	}
	if len(order) == 0 {
		return nil, ErrNoLinkMap
	}
	return order, nil
}

// linkMapHead finds the first link_map through the DT_DEBUG entry of the program's dynamic section.
func (p *Process) linkMapHead() (uint64, error) {
	dynamic, err := p.dynamicSection()
	if err != nil {
		return 0, err
	}
	for address, n := dynamic, 0; n < maxDynamicEntries; n++ {
		var entry struct{ Tag, Value uint64 }
		if err := p.readMemory(address, &entry); err != nil {
			return 0, err
		}
		switch {
		case elf.DynTag(entry.Tag) == elf.DT_NULL:
			return 0, ErrNoLinkMap
		case elf.DynTag(entry.Tag) == elf.DT_DEBUG && entry.Value != 0:
			var debug struct{ Version, Head uint64 } // an int and its padding, a pointer
			if err := p.readMemory(entry.Value, &debug); err != nil {
				return 0, err
			}
			return debug.Head, nil
		}
		address += 16
	}
	return 0, ErrNoLinkMap
}

// dynamicSection is the address of the program's dynamic section.
func (p *Process) dynamicSection() (uint64, error) {
	headers, count, err := p.programHeaders()
	if err != nil {
		return 0, err
	}
	var base, dynamic uint64
	var placed bool
	for i := range count {
		var header elf.Prog64
		if err := p.readMemory(headers+i*56, &header); err != nil {
			return 0, err
		}
		switch kind := elf.ProgType(header.Type); {
		case kind == elf.PT_PHDR:
			base, placed = headers-header.Vaddr, true
		case kind == elf.PT_LOAD && header.Off == 0 && !placed: // static-pie has no PT_PHDR; its headers are in the first page
			base = headers&^(minPageSize-1) - header.Vaddr
		case kind == elf.PT_DYNAMIC:
			dynamic = header.Vaddr
		}
	}
	if dynamic == 0 {
		return 0, ErrNoLinkMap
	}
	return base + dynamic, nil
}

// programHeaders finds the program's headers in memory through the auxiliary vector.
func (p *Process) programHeaders() (address, count uint64, err error) {
	raw, err := p.read("auxv")
	if err != nil {
		return 0, 0, err
	}
	const atPhdr, atPhnum = 3, 5 // <elf.h>
	for ; len(raw) >= 16; raw = raw[16:] {
		switch value := binary.LittleEndian.Uint64(raw[8:]); binary.LittleEndian.Uint64(raw) {
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

// readMemory fills value, a pointer to a struct of fixed size, from the memory of the process.
func (p *Process) readMemory(address uint64, value any) error {
	buffer := make([]byte, binary.Size(value))
	if err := p.ReadMemory(address, buffer); err != nil {
		return err
	}
	_, err := binary.Decode(buffer, binary.LittleEndian, value)
	return err
}
