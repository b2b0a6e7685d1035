package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// Imports gives those functions and variables that the file refers to by name through a pointer which the dynamic linker
// fills in: the name by the virtual address of the pointer, without symbol version, of the wanted ones. They may be the
// file's own.
func (f *File) Imports(wanted func(name string) bool) (map[uint64]string, error) {
	found := make(map[uint64]string)
	dynsym := f.image.dynsym
	if dynsym.size() == 0 {
		return found, nil
	}
	names, err := f.image.bytes(dynsym.names, maxNames)
	if err != nil {
		return nil, fmt.Errorf("read symbol names: %w", err)
	}
	symbols, err := f.image.bytes(dynsym.symbols, maxSymbols*elf.Sym64Size)
	if err != nil {
		return nil, fmt.Errorf("read symbols: %w", err)
	}
	for _, section := range f.image.imports {
		entries, err := f.image.bytes(section, maxRelocations*relocationSize)
		if err != nil {
			return nil, fmt.Errorf("read relocations: %w", err)
		}
		for ; len(entries) >= relocationSize; entries = entries[relocationSize:] {
			name := importedName(f.image.machine, entries, symbols, names)
			if len(name) > 0 && len(name) <= maxImport && len(found) < maxImports && wanted(string(name)) {
				found[binary.LittleEndian.Uint64(entries)] = string(name)
			}
		}
	}
	return found, nil
}

const relocationSize = 24 // bytes of an Elf64_Rela

// importedName decodes an Elf64_Rela; the name is empty if it is not for a pointer to a symbol.
func importedName(machine elf.Machine, relocation, symbols, names []byte) []byte {
	info := binary.LittleEndian.Uint64(relocation[8:])
	kind, index := uint32(info), info>>32
	switch {
	case machine == elf.EM_X86_64 && (elf.R_X86_64(kind) == elf.R_X86_64_JMP_SLOT || elf.R_X86_64(kind) == elf.R_X86_64_GLOB_DAT):
	case machine == elf.EM_AARCH64 && (elf.R_AARCH64(kind) == elf.R_AARCH64_JUMP_SLOT || elf.R_AARCH64(kind) == elf.R_AARCH64_GLOB_DAT):
	default:
		return nil
	}
	if index >= uint64(len(symbols)/elf.Sym64Size) {
		return nil
	}
	at := uint64(binary.LittleEndian.Uint32(symbols[index*elf.Sym64Size:]))
	if at >= uint64(len(names)) {
		return nil
	}
	name, _, _ := bytes.Cut(names[at:min(at+maxName, uint64(len(names)))], []byte{0})
	name, _, _ = bytes.Cut(name, []byte("@"))
	return name
}
