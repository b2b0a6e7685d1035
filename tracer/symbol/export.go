package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// A Symbol is a function or a variable.
type Symbol struct {
	Address uint64 // virtual, as in the file
	Size    uint64 // bytes, as the file claims
}

// Export finds a symbol that the file offers to others (.dynsym). It costs a few reads where the file has a GNU hash
// table, as all that today's linkers make have; else all names are compared. ok is false if the file exports no such
// function or variable, or is damaged.
func (f *File) Export(name string) (s Symbol, ok bool) {
	if f.image.hash.size == 0 {
		return f.image.search(name)
	}
	return f.image.lookUp(name)
}

// lookUp finds an exported symbol by the hash table: a Bloom filter of 64-bit words, the first symbol of each bucket, and
// for each symbol its hash, the lowest bit of which ends the bucket. https://flapenguin.me/elf-dt-gnu-hash
func (m *image) lookUp(name string) (Symbol, bool) {
	const headerSize = 16
	header, err := m.bytes(span{m.hash.off, headerSize}, headerSize)
	if err != nil {
		return Symbol{}, false
	}
	word := func(i int) uint64 { return uint64(binary.LittleEndian.Uint32(header[i*4:])) }
	buckets, first, filter, shift := word(0), word(1), word(2), word(3)
	if buckets == 0 || filter == 0 {
		return Symbol{}, false
	}
	hash := gnuHash(name)
	at := m.hash.off + headerSize
	bits, ok := m.word64(at + uint64(hash)/64%filter*8)
	if !ok || bits>>(hash%64)&1 == 0 || bits>>(hash>>(shift%32)%64)&1 == 0 {
		return Symbol{}, false
	}
	at += filter * 8
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

func gnuHash(name string) uint32 {
	hash := uint32(5381)
	for i := range len(name) {
		hash = hash*33 + uint32(name[i])
	}
	return hash
}

// search finds an exported symbol among all.
func (m *image) search(name string) (s Symbol, ok bool) {
	m.each(m.dynsym, func(entry, text []byte) {
		if !ok && string(text) == name {
			s, ok = definedGlobal(entry)
		}
	})
	return s, ok
}

// each visits the entries of a symbol table, none if it is damaged. A name that is too long is cut.
func (m *image) each(section symbolSection, visit func(entry, name []byte)) {
	names, err := m.bytes(section.names, maxNames)
	if err != nil {
		return
	}
	symbols, err := m.bytes(section.symbols, maxSymbols*elf.Sym64Size)
	if err != nil {
		return
	}
	for ; len(symbols) >= elf.Sym64Size; symbols = symbols[elf.Sym64Size:] {
		at := min(uint64(binary.LittleEndian.Uint32(symbols)), uint64(len(names)))
		name, _, _ := bytes.Cut(names[at:min(at+maxName, uint64(len(names)))], []byte{0})
		visit(symbols[:elf.Sym64Size], name)
	}
}

// exported reads symbol i of .dynsym and compares its name.
func (m *image) exported(i uint64, name string) (Symbol, bool) {
	if i >= m.dynsym.size()/elf.Sym64Size {
		return Symbol{}, false
	}
	entry, err := m.bytes(span{m.dynsym.symbols.off + i*elf.Sym64Size, elf.Sym64Size}, elf.Sym64Size)
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

// definedGlobal decodes an Elf64_Sym. ok is false if it is no function or variable that this file gives to others.
func definedGlobal(entry []byte) (s Symbol, ok bool) {
	info, section := entry[4], elf.SectionIndex(binary.LittleEndian.Uint16(entry[6:]))
	kind := elf.ST_TYPE(info)
	if kind != elf.STT_FUNC && kind != elf.STT_OBJECT || elf.ST_BIND(info) == elf.STB_LOCAL || section == elf.SHN_UNDEF {
		return Symbol{}, false
	}
	return Symbol{binary.LittleEndian.Uint64(entry[8:]), binary.LittleEndian.Uint64(entry[16:])}, true
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
