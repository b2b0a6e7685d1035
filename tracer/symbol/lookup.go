package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
)

// A Symbol is a function or a variable.
type Symbol struct {
	Address uint64 // virtual, as in the file
	Size    uint64 // bytes, as the file claims
}

// Export returns a function or variable that the file exports (.dynsym). With a GNU hash table,
// which all of today's linkers write, it costs a few reads; without one, all names are compared.
// ok is false if the file exports no such symbol, or is damaged.
func (f *File) Export(name string) (s Symbol, ok bool) {
	if f.image.hash.size == 0 {
		return f.image.searchExports(name)
	}
	return f.image.hashExport(name)
}

// hashExport finds an exported symbol by .gnu.hash: a Bloom filter of 64-bit words, the first
// symbol of each bucket, and for each symbol its hash, the lowest bit of which ends the chain.
// https://flapenguin.me/elf-dt-gnu-hash
func (m *image) hashExport(name string) (Symbol, bool) {
	const headerSize = 16
	header, err := m.bytes(span{m.hash.off, headerSize}, headerSize)
	if err != nil {
		return Symbol{}, false
	}

	word := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(header[i*4:])) }
	buckets, first, bloomSize, bloomShift := word(0), word(1), word(2), word(3)
	if buckets == 0 || bloomSize == 0 {
		return Symbol{}, false
	}

	hash := gnuHash(name)
	at := m.hash.off + headerSize
	bloom, ok := m.word64(at + uint64(hash)/64%bloomSize*8)
	if !ok || bloom>>(hash%64)&1 == 0 || bloom>>(hash>>(bloomShift%32)%64)&1 == 0 {
		return Symbol{}, false
	}

	at += bloomSize * 8
	index, ok := m.word32(at + uint64(hash)%buckets*4)
	if !ok || uint64(index) < first {
		return Symbol{}, false
	}

	at += buckets * 4
	for i := uint64(index); i < uint64(index)+maxChain; i++ {
		value, ok := m.word32(at + (i-first)*4)
		if !ok {
			break
		}

		if value|1 == hash|1 {
			if s, ok := m.exported(i, name); ok {
				return s, true
			}
		}

		if value&1 != 0 {
			break
		}
	}

	return Symbol{}, false
}

// gnuHash is the hash function of .gnu.hash, Daniel J. Bernstein's.
func gnuHash(name string) uint32 {
	hash := uint32(5381)
	for i := range len(name) {
		hash = hash*33 + uint32(name[i])
	}

	return hash
}

// searchExports finds an exported symbol without a hash table.
func (m *image) searchExports(name string) (s Symbol, ok bool) {
	m.each(m.dynsym, func(entry, text []byte) {
		if !ok && string(text) == name {
			s, ok = definedGlobal(entry)
		}
	})

	return s, ok
}

// exported decodes symbol i of .dynsym. ok is false if it has another name.
func (m *image) exported(i uint64, name string) (s Symbol, ok bool) {
	if i >= m.dynsym.size()/elf.Sym64Size {
		return Symbol{}, false
	}

	entry, err := m.bytes(span{m.dynsym.symbols.off + i*elf.Sym64Size, elf.Sym64Size},
		elf.Sym64Size)
	if err != nil {
		return Symbol{}, false
	}

	at, size := uint64(binary.LittleEndian.Uint32(entry)), uint64(len(name))+1
	if at > m.dynsym.names.size || size > m.dynsym.names.size-at {
		return Symbol{}, false
	}

	text, err := m.bytes(span{m.dynsym.names.off + at, size}, size)
	if err != nil || string(text) != name+"\x00" {
		return Symbol{}, false
	}

	return definedGlobal(entry)
}

// definedGlobal decodes an Elf64_Sym. ok is false unless it is a function or variable that this
// file defines and exports.
func definedGlobal(entry []byte) (s Symbol, ok bool) {
	info, section := entry[4], elf.SectionIndex(binary.LittleEndian.Uint16(entry[6:]))
	kind := elf.ST_TYPE(info)
	if kind != elf.STT_FUNC && kind != elf.STT_OBJECT || elf.ST_BIND(info) == elf.STB_LOCAL ||
		section == elf.SHN_UNDEF {
		return Symbol{}, false
	}

	return Symbol{
		binary.LittleEndian.Uint64(entry[8:]),
		binary.LittleEndian.Uint64(entry[16:]),
	}, true
}

// A Table is one of the two symbol tables that a file can have.
type Table int

// The tables: the exports and imports of a file, and all that it was linked from, which strip
// removes.
const (
	Dynsym Table = iota // .dynsym
	Symtab              // .symtab
)

// Functions returns the virtual addresses of the wanted functions of a table, by name without
// symbol version. A local function counts if it is the only one of its name: the linker makes the
// C library's functions local in a static-pie program. The result is empty if the file has no
// such table.
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

// EachFunction visits the functions of a table, none if the file has no such table. name has no
// symbol version and is valid during the visit only. Several local functions can have one name.
func (f *File) EachFunction(t Table, visit func(name []byte, address uint64, isLocal bool)) error {
	section := f.image.dynsym
	if t == Symtab {
		section = f.image.symtab
	}

	if section.size() == 0 {
		return f.image.damage
	}

	symbols, names, err := f.image.symbolTable(section)
	if err != nil {
		return err
	}

	for ; len(symbols) >= elf.Sym64Size; symbols = symbols[elf.Sym64Size:] {
		if name, address, isLocal := definedFunction(symbols, names); len(name) > 0 {
			visit(name, address, isLocal)
		}
	}

	return nil
}

// definedFunction decodes an Elf64_Sym. Its name is empty if it is no function that this file
// defines.
func definedFunction(symbol, names []byte) (name []byte, address uint64, isLocal bool) {
	info, section := symbol[4], elf.SectionIndex(binary.LittleEndian.Uint16(symbol[6:]))
	if elf.ST_TYPE(info) != elf.STT_FUNC || section == elf.SHN_UNDEF {
		return nil, 0, false
	}
	address, isLocal = binary.LittleEndian.Uint64(symbol[8:]), elf.ST_BIND(info) == elf.STB_LOCAL
	return unversioned(symbol, names), address, isLocal
}

// unversioned returns the name of an Elf64_Sym without symbol version, empty if it lies outside
// names.
func unversioned(symbol, names []byte) []byte {
	at := uint64(binary.LittleEndian.Uint32(symbol))
	if at >= uint64(len(names)) {
		return nil
	}

	name, _, _ := bytes.Cut(names[at:min(at+maxName, uint64(len(names)))], []byte{0})
	name, _, _ = bytes.Cut(name, []byte("@"))
	return name
}

// Imports returns the names of wanted functions and variables that the file refers to through a
// pointer in its global offset table, which the dynamic linker fills in. Keys are the virtual
// addresses of the pointers; names have no symbol version. The file may define such a symbol
// itself.
func (f *File) Imports(wanted func(name string) bool) (map[uint64]string, error) {
	found := make(map[uint64]string)
	if f.image.dynsym.size() == 0 {
		return found, nil
	}

	symbols, names, err := f.image.symbolTable(f.image.dynsym)
	if err != nil {
		return nil, err
	}

	for _, section := range f.image.imports {
		entries, err := f.image.bytes(section, maxRelocations*relocationSize)
		if err != nil {
			return nil, fmt.Errorf("read relocations: %w", err)
		}

		for ; len(entries) >= relocationSize; entries = entries[relocationSize:] {
			name := importedName(f.image.machine, entries, symbols, names)
			if len(name) > 0 && len(name) <= maxImport && len(found) < maxImports &&
				wanted(string(name)) {
				found[binary.LittleEndian.Uint64(entries)] = string(name)
			}
		}
	}

	return found, nil
}

// Lacks reports for each of some names whether the file refers to a function or variable of that name
// which it leaves to other files to define. It reads no relocations, and only the part of the names
// in which the names of undefined symbols lie.
func (f *File) Lacks(names ...string) ([]bool, error) {
	m := f.image
	lacks := make([]bool, len(names))
	if m.dynsym.size() == 0 {
		return lacks, nil
	}

	entries, err := m.bytes(m.dynsym.symbols, maxSymbols*elf.Sym64Size)
	if err != nil {
		return nil, fmt.Errorf("read symbols: %w", err)
	}
	undefined, used := undefinedNames(entries)
	if used.off >= m.dynsym.names.size {
		return lacks, nil
	}
	used.size = min(used.size+maxName, m.dynsym.names.size-used.off)
	text, err := m.bytes(span{m.dynsym.names.off + used.off, used.size}, maxNames)
	if err != nil {
		return nil, fmt.Errorf("read symbol names: %w", err)
	}
	m.tableBytes += m.dynsym.symbols.size + used.size

	for _, at := range undefined {
		name := text[min(uint64(at)-used.off, uint64(len(text))):]
		for i, wanted := range names {
			after, ok := bytes.CutPrefix(name, []byte(wanted))
			if ok && len(after) > 0 && after[0] == 0 {
				lacks[i] = true
			}
		}
	}
	return lacks, nil
}

// undefinedNames returns where the names of undefined symbols begin, and the range of these offsets.
func undefinedNames(symbols []byte) (names []uint32, used span) {
	for ; len(symbols) >= elf.Sym64Size; symbols = symbols[elf.Sym64Size:] {
		section := elf.SectionIndex(binary.LittleEndian.Uint16(symbols[6:]))
		if name := binary.LittleEndian.Uint32(symbols); name != 0 && section == elf.SHN_UNDEF {
			names = append(names, name)
		}
	}
	if len(names) > 0 {
		used.off = uint64(slices.Min(names))
		used.size = uint64(slices.Max(names)) - used.off
	}
	return names, used
}

const relocationSize = 24 // bytes of an Elf64_Rela

// importedName returns the name of the symbol of an Elf64_Rela, empty unless the relocation is
// for a pointer to a symbol.
func importedName(machine elf.Machine, relocation, symbols, names []byte) []byte {
	info := binary.LittleEndian.Uint64(relocation[8:])
	kind, index := uint32(info), info>>32
	isPointer := false

	switch machine {
	case elf.EM_X86_64:
		r := elf.R_X86_64(kind)
		isPointer = r == elf.R_X86_64_JMP_SLOT || r == elf.R_X86_64_GLOB_DAT
	case elf.EM_AARCH64:
		r := elf.R_AARCH64(kind)
		isPointer = r == elf.R_AARCH64_JUMP_SLOT || r == elf.R_AARCH64_GLOB_DAT
	}

	if !isPointer || index >= uint64(len(symbols)/elf.Sym64Size) {
		return nil
	}

	return unversioned(symbols[index*elf.Sym64Size:], names)
}

// BytesRead is how many bytes of whole symbol tables have been read of the file, counted each time.
func (f *File) BytesRead() uint64 { return f.image.tableBytes }

// symbolTable reads a whole symbol table and its names.
func (m *image) symbolTable(section symbolSection) (symbols, names []byte, err error) {
	if names, err = m.bytes(section.names, maxNames); err != nil {
		return nil, nil, fmt.Errorf("read symbol names: %w", err)
	}
	if symbols, err = m.bytes(section.symbols, maxSymbols*elf.Sym64Size); err != nil {
		return nil, nil, fmt.Errorf("read symbols: %w", err)
	}
	m.tableBytes += section.names.size + section.symbols.size
	return symbols, names, nil
}

// each visits the entries of a symbol table, none if it is damaged. Names that are too long are
// truncated.
func (m *image) each(section symbolSection, visit func(entry, name []byte)) {
	symbols, names, err := m.symbolTable(section)
	if err != nil {
		return
	}

	for ; len(symbols) >= elf.Sym64Size; symbols = symbols[elf.Sym64Size:] {
		at := min(uint64(binary.LittleEndian.Uint32(symbols)), uint64(len(names)))
		name, _, _ := bytes.Cut(names[at:min(at+maxName, uint64(len(names)))], []byte{0})
		visit(symbols[:elf.Sym64Size], name)
	}
}
