package symbol

import (
	"bytes"
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"math"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/allocscope/allocscope/growth"
)

// A table is the symbols of one kind of one symbol section, sorted. The names stay
// in the file.
type table struct {
	image   *image
	names   span
	symbols []symbol
	last    []uint64 // the greatest last address in each block of symbols
}

// blockSize is the number of symbols in a block of table.last.
const blockSize = 64

// A symbol is a function or a variable. 16 bytes: some files have millions.
type symbol struct {
	value  uint64 // virtual address
	extent uint32 // size in bytes << 1, plus 1 if the symbol is not local
	name   uint32 // offset in the string table
}

// maxSize is the size that larger symbols are cut to, in bytes.
const maxSize = math.MaxUint32 >> 1

func (s symbol) size() uint64 { return uint64(s.extent >> 1) }

// end returns the last address of s.
func (s symbol) end() uint64 {
	if end := s.value + s.size() - 1; end >= s.value {
		return end
	}
	return math.MaxUint64
}

// A kindFilter reports whether the symbols of a type belong in a table.
type kindFilter func(elf.SymType) bool

func isFunction(t elf.SymType) bool { return t == elf.STT_FUNC || t == elf.STT_GNU_IFUNC }
func isVariable(t elf.SymType) bool { return t == elf.STT_OBJECT }

// readTable reads the wanted symbols of section s of m; none if s is empty.
func readTable(m *image, s symbolSection, isWanted kindFilter) (table, error) {
	t := table{image: m, names: s.names}
	if err := m.check(s.symbols, maxSymbols*elf.Sym64Size); err != nil {
		return t, fmt.Errorf("read symbols: %w", err)
	}
	if err := m.check(s.names, math.MaxUint32); err != nil {
		return t, fmt.Errorf("read symbol names: %w", err)
	}

	symbols, err := readSymbols(m, s.symbols, isWanted)
	if err != nil {
		return t, fmt.Errorf("read symbols: %w", err)
	}

	slices.SortFunc(symbols, func(a, b symbol) int {
		return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.extent, b.extent),
			cmp.Compare(a.name, b.name))
	})

	t.symbols = symbols
	for block := range slices.Chunk(symbols, blockSize) {
		var last uint64
		for _, s := range block {
			last = max(last, s.end())
		}

		t.last = append(t.last, last)
	}

	return t, nil
}

// readSymbols reads the wanted symbols in s, unsorted.
func readSymbols(m *image, s span, isWanted kindFilter) ([]symbol, error) {
	const chunk = 4096 * elf.Sym64Size // bytes read at once
	var symbols []symbol
	for s.size >= elf.Sym64Size {
		n := min(s.size-s.size%elf.Sym64Size, chunk)
		buf, err := m.bytes(span{s.off, n}, chunk)
		if err != nil {
			return nil, err
		}

		for entry := range slices.Chunk(buf, elf.Sym64Size) {
			if sym, ok := decode(entry); ok && isWanted(elf.ST_TYPE(entry[4])) {
				symbols = append(symbols, sym)
			}
		}

		s.off, s.size = s.off+n, s.size-n
	}

	return append(make([]symbol, 0, len(symbols)), symbols...), nil // drops spare capacity
}

// decode decodes an Elf64_Sym (elf(5), "String and symbol tables"). ok is false
// if it is not defined, or has no address.
func decode(entry []byte) (s symbol, ok bool) {
	name := binary.LittleEndian.Uint32(entry)
	section := elf.SectionIndex(binary.LittleEndian.Uint16(entry[6:]))
	value := binary.LittleEndian.Uint64(entry[8:])
	size := binary.LittleEndian.Uint64(entry[16:])

	if section == elf.SHN_UNDEF || value == 0 || name == 0 {
		return symbol{}, false
	}

	// A symbol of size 0 contains its own address and no other.
	extent := uint32(min(max(size, 1), maxSize)) << 1
	if elf.ST_BIND(entry[4]) != elf.STB_LOCAL {
		extent |= 1
	}

	return symbol{value, extent, name}, true
}

// find returns the index of the last symbol that contains vaddr: the one that
// starts last, of those the longest, of those one that is not local. Aliases of
// it precede it. Blocks that end before vaddr are skipped, so that at most two
// blocks are searched.
func (t *table) find(vaddr uint64) (i int, ok bool) {
	i = sort.Search(len(t.symbols), func(i int) bool { return t.symbols[i].value > vaddr }) - 1
	for i >= 0 {
		if t.last[i/blockSize] < vaddr {
			i = i/blockSize*blockSize - 1
			continue
		}

		if t.symbols[i].end() >= vaddr {
			return i, true
		}

		i--
	}

	return 0, false
}

// name returns the best name, mangled, among symbol i, which find returned, and
// its aliases: the symbols of the same address, size and visibility. It is ""
// if none of them has a name.
func (t *table) name(i int) (string, error) {
	best := ""
	want := t.symbols[i]
	for n := 0; n < maxAliases && i >= 0; n, i = n+1, i-1 {
		s := t.symbols[i]
		if s.value != want.value || s.extent != want.extent {
			break
		}

		name, err := t.string(s.name)
		if err != nil {
			return best, err
		}

		if best == "" || name != "" && compareAliases(name, best) < 0 {
			best = name
		}
	}

	return best, nil
}

// string reads the name at an offset of the string table, without its version
// (malloc@@GLIBC_2.2.5) and cut to maxName bytes.
func (t *table) string(offset uint32) (string, error) {
	if uint64(offset) >= t.names.size {
		return "", fmt.Errorf("read symbol name: offset %d of %d", offset, t.names.size)
	}

	rest := span{t.names.off + uint64(offset), min(t.names.size-uint64(offset), maxName)}
	buf, err := t.image.bytes(rest, maxName)
	if err != nil {
		return "", fmt.Errorf("read symbol name: %w", err)
	}

	if end := bytes.IndexByte(buf, 0); end >= 0 {
		buf = buf[:end]
	}

	if at := bytes.IndexByte(buf, '@'); at > 0 {
		buf = buf[:at]
	}

	return string(buf), nil
}

// compareAliases orders the names of one symbol, best first: malloc before
// cmalloc before __libc_malloc.
func compareAliases(a, b string) int {
	return cmp.Or(cmp.Compare(underscored(a), underscored(b)), cmp.Compare(len(a), len(b)),
		strings.Compare(a, b))
}

// underscored returns 1 if name starts with an underscore that is not part of
// the C++ or Rust mangling, otherwise 0.
func underscored(name string) int {
	if strings.HasPrefix(name, "_") && !strings.HasPrefix(name, "_Z") &&
		!strings.HasPrefix(name, "_R") {
		return 1
	}
	return 0
}

// Demangle returns the name of a C++ or Rust function as Name does: without
// parameters and template arguments, of printable characters, at most 4096 bytes
// long. Other names are returned as they are.
func Demangle(name string) string { return printed(name) }

// printed returns name as people read it: demangled, of printable characters.
// It is empty only if name is.
func printed(name string) string {
	return growth.Printable(goName(demangled(name)))
}

// typeShape matches the type arguments of a generic function of Go, by their shapes in memory.
var typeShape = regexp.MustCompile(`\[go\.shape\..*\]`)

// cgoCall matches the functions of C that cgo writes, a package's hash and the called function in
// their names (cmd/cgo/out.go).
var cgoCall = regexp.MustCompile(`^_cgo_[0-9a-f]{8,}_C2?func_(\w+)$`)

// goName is a name of a function of Go as Go's own tools print it: without type arguments, with
// the dots of the last part of the package's path, which the linker escapes, and C.NAME where Go
// calls C.
func goName(name string) string {
	if strings.Contains(name, "[go.shape.") {
		name = typeShape.ReplaceAllString(name, "[...]")
	}
	if strings.Contains(name, "/") {
		name = strings.ReplaceAll(name, "%2e", ".")
	}
	if m := cgoCall.FindStringSubmatch(name); m != nil {
		return "C." + m[1]
	}
	return name
}

// demangled demangles a C++ or Rust name with pprof's default options: no
// parameters and no template arguments. Other names, and those that the
// demangler does not understand, are returned as they are.
//
// The demangler panics on some names, for example
// _ZN3NMSW3MFccvoB3ABIEccccccccooB3ABIEc, hence the recover. maxName bounds
// its time, memory and depth on both sides: of 16 million names that a fuzzer
// made, none took 0.2 s.
func demangled(name string) (result string) {
	defer func() {
		if recover() != nil || result == "" {
			result = name
		}
	}()

	return demangle.Filter(name, demangle.NoParams, demangle.NoEnclosingParams,
		demangle.NoTemplateParams, demangle.MaxLength(12)) // 2^12 == maxName
}
