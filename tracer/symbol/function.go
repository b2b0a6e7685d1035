package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// A Table is one of the two symbol tables that a file can have.
type Table int

// The tables: what a file exports to others, and all that it was linked from, which stripping removes.
const (
	Dynamic Table = iota // .dynsym
	Static               // .symtab
)

// Machine the code is for.
func (f *File) Machine() elf.Machine { return f.image.machine }

// Functions gives the virtual addresses of those functions of a table that are wanted by name, without symbol version. A
// local name counts if there is one of it: the linker makes the C library's functions local in a static-pie program. The
// result is empty if the file has no such table.
func (f *File) Functions(t Table, wanted map[string]bool) (map[string]uint64, error) {
	global, local := make(map[string]uint64), make(map[string][]uint64)
	err := f.EachFunction(t, func(name []byte, address uint64, isLocal bool) {
		switch {
		case !wanted[string(name)]:
		case isLocal:
			local[string(name)] = append(local[string(name)], address)
		default:
			if _, ok := global[string(name)]; !ok {
				global[string(name)] = address
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for name, addresses := range local {
		if _, ok := global[name]; !ok && len(addresses) == 1 {
			global[name] = addresses[0]
		}
	}
	return global, nil
}

// EachFunction visits the functions of a table: the name without symbol version, valid during the visit only; the virtual
// address; and whether it is local, of which there may be several of one name. It visits none if the file has no such table.
func (f *File) EachFunction(t Table, visit func(name []byte, address uint64, isLocal bool)) error {
	section := f.image.dynsym
	if t == Static {
		section = f.image.symtab
	}
	if section.size() == 0 {
		return f.image.damage
	}
	names, err := f.image.bytes(section.names, maxNames)
	if err != nil {
		return fmt.Errorf("read symbol names: %w", err)
	}
	symbols, err := f.image.bytes(section.symbols, maxSymbols*elf.Sym64Size)
	if err != nil {
		return fmt.Errorf("read symbols: %w", err)
	}
	for ; len(symbols) >= elf.Sym64Size; symbols = symbols[elf.Sym64Size:] {
		if name, address, isLocal := definedFunction(symbols, names); len(name) > 0 {
			visit(name, address, isLocal)
		}
	}
	return nil
}

// definedFunction decodes an Elf64_Sym; its name is empty if it is no defined function.
func definedFunction(symbol, names []byte) (name []byte, address uint64, isLocal bool) {
	info, section := symbol[4], elf.SectionIndex(binary.LittleEndian.Uint16(symbol[6:]))
	at := uint64(binary.LittleEndian.Uint32(symbol))
	if elf.ST_TYPE(info) != elf.STT_FUNC || section == elf.SHN_UNDEF || at >= uint64(len(names)) {
		return nil, 0, false
	}
	name, _, _ = bytes.Cut(names[at:min(at+maxName, uint64(len(names)))], []byte{0})
	name, _, _ = bytes.Cut(name, []byte("@"))
	return name, binary.LittleEndian.Uint64(symbol[8:]), elf.ST_BIND(info) == elf.STB_LOCAL
}

// Size gives the bytes of code of the function that begins at a virtual address, by the best symbol table there is; 0: it
// tells of none, or not how long it is.
func (f *File) Size(vaddr uint64) uint64 {
	f.load()
	i, ok := f.symbols.find(vaddr)
	if !ok || f.symbols.symbols[i].value != vaddr {
		return 0
	}
	return f.symbols.symbols[i].size()
}

// Code reads up to limit bytes of code from a virtual address on, and gives their offset in the file. It is an error if
// no executable segment holds the address.
func (f *File) Code(vaddr uint64, limit int) (code []byte, offset uint64, err error) {
	for _, s := range f.image.loads {
		at := vaddr - s.Vaddr
		if elf.ProgFlag(s.Flags)&elf.PF_X == 0 || vaddr < s.Vaddr || at >= s.Filesz {
			continue
		}
		code = make([]byte, min(uint64(limit), s.Filesz-at))
		n, err := f.image.r.ReadAt(code, int64(s.Off+at))
		if n == 0 {
			return nil, 0, fmt.Errorf("read code at offset %#x: %w", s.Off+at, err)
		}
		return code[:n], s.Off + at, nil
	}
	return nil, 0, fmt.Errorf("address %#x is in no executable segment", vaddr)
}
