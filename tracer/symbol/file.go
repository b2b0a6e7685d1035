// Package symbol names the functions and variables at addresses in ELF files.
//
// The files belong to the traced process and the tracer runs as root, so they
// are hostile input: every size is checked against the file and a limit (limits.go) before memory
// is allocated, and damaged data yield no name rather than a wrong one.
//
// Sources, best first; the first that lists a function, or a variable, is the only
// one used for them, because each is a superset of the next:
//
//  1. .symtab of the file,
//  2. .symtab of its separate debug file (debugfile.go), sought only when the
//     file has no .symtab,
//  3. .symtab of its MiniDebugInfo (minidebug.go), sought only when there is no
//     debug file, and .dynsym of the file: neither lists the symbols of the other.
//
// Not read: DWARF, .dynsym without a section header, and PLT entries: they jump
// rather than call, so that no return address of a stack lies in one.
package symbol

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"unsafe"

	"github.com/allocscope/allocscope/tracer/hostile"
)

// A File is an opened ELF file, with the data to name an address in it. It is safe for use by one
// goroutine at a time.
type File struct {
	image     *image
	opened    *hostile.File // by New; nil: the caller's
	debug     *debugFile    // nil: none found, none needed, or not sought yet
	mini      *image        // MiniDebugInfo; nil as debug
	findDebug func()        // nil: none is needed

	functions, variables namedSymbols
	problems             []error
}

// namedSymbols are the symbols of one kind, and the names of them that were read.
type namedSymbols struct {
	tables []table
	loaded bool               // the symbol tables were sought
	cache  map[*symbol]string // printed names; bounded by maxCache
	cached int                // bytes in cache
}

// find returns the symbol that contains an address, and its table; nil: there is none.
func (s *namedSymbols) find(vaddr uint64) (t *table, i int) {
	for n := range s.tables {
		if i, ok := s.tables[n].find(vaddr); ok {
			return &s.tables[n], i
		}
	}
	return nil, 0
}

// New reads the headers of f, a 64-bit little-endian ELF executable or shared
// object. Its symbols are read, and its debug file is sought, by the first call
// to Name, Size or Variable. f belongs to the File, which closes it; an error closes it, too.
//
// path is where the process sees the file; with a .gnu_debuglink it leads to
// the debug file. root is the process's root directory. It is used later, when
// the process may be gone: see Process.HoldRoot of package process. Debug files are sought in the
// host's /usr/lib/debug first and then there. With an empty root only the host
// is searched.
//
// It is an error if f is not ELF, 32-bit or big-endian,
// neither an executable nor a shared object, or if its program headers cannot
// be read. Damaged sections and refused debug files only cost names: see Err.
func (d *DebugFiles) New(f *hostile.File, path, root string) (*File, error) {
	file, err := Open(f, path)
	if err != nil {
		_ = f.Close() // it was only read
		return nil, err
	}

	file.opened = f
	if file.image.symtab.size() == 0 {
		file.findDebug = func() { d.find(file, path, root) }
	}

	return file, nil
}

// Open is DebugFiles.New without the search for a debug file. f stays the caller's, and has to stay
// open for as long as the File is used.
func Open(f *hostile.File, path string) (*File, error) {
	file, err := newFile(f, f.Size())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}

	return file, nil
}

// newFile is Open for any reader. size is in bytes.
func newFile(r io.ReaderAt, size int64) (*File, error) {
	image, err := newImage(r, size)
	if err != nil {
		return nil, err
	}

	f := &File{image: image}
	f.problem(image.damage)
	return f, nil
}

// Close closes the file that was given to New, and the debug file if one was opened. Name must not
// be called afterwards. A nil File is closed.
func (f *File) Close() error {
	if f == nil {
		return nil
	}

	var errs []error
	if f.opened != nil {
		errs = append(errs, f.opened.Close())
	}
	if f.debug != nil {
		errs = append(errs, f.debug.Close())
	}
	return errors.Join(errs...)
}

// BuildID returns the GNU build ID in lower-case hexadecimal, or "" if the file has none. The file
// claims it, and no one has checked it: a hostile file can carry the build ID of another.
func (f *File) BuildID() string { return f.image.buildID }

// Machine returns the architecture that the code is for.
func (f *File) Machine() elf.Machine { return f.image.machine }

// Address converts an offset in the file, in bytes, to the virtual address that
// the ELF headers give it. ok is false if no PT_LOAD program header holds the
// offset. Where an executable segment and another hold it, the executable one
// answers.
func (f *File) Address(offset uint64) (vaddr uint64, ok bool) {
	for _, s := range f.image.loads {
		if offset < s.Off || offset-s.Off >= s.Filesz {
			continue
		}
		if elf.ProgFlag(s.Flags)&elf.PF_X != 0 {
			return offset - s.Off + s.Vaddr, true
		}

		if !ok {
			vaddr, ok = offset-s.Off+s.Vaddr, true
		}
	}

	return vaddr, ok
}

// Bias returns what to add to virtual addresses of the file to get addresses of a
// process that maps the file, executable, at start from a file offset on. ok is
// false if no executable segment is at that offset.
func (f *File) Bias(start, offset uint64) (bias uint64, ok bool) {
	const page = 1 << 12 // segments begin anywhere in their first page
	for _, s := range f.image.loads {
		if elf.ProgFlag(s.Flags)&elf.PF_X != 0 && s.Off&^(page-1) <= offset &&
			offset < s.Off+s.Filesz {
			return start - offset + s.Off - s.Vaddr, true
		}
	}

	return 0, false
}

// Writable returns the PT_LOAD program headers of writable memory: the file's variables.
func (f *File) Writable() (segments []elf.Prog64) {
	for _, s := range f.image.loads {
		if elf.ProgFlag(s.Flags)&elf.PF_W != 0 {
			segments = append(segments, s)
		}
	}
	return segments
}

// Code reads up to limit bytes of code from a virtual address on, and returns
// their offset in the file. It is an error if no executable segment holds the
// address.
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

// Name returns the name of the function that contains the ELF virtual address
// vaddr: demangled, without parameter lists, template arguments and symbol
// version, as pprof prints names by default, and of printable characters only.
//
// ok is false if no function contains vaddr. The size of a symbol is honoured:
// the nearest symbol is no answer for an address behind its end. A symbol of
// size 0, from hand-written assembly, contains its own address only. Where
// functions nest, the one that starts last answers.
func (f *File) Name(vaddr uint64) (name string, ok bool) {
	name, _, ok = f.name(&f.functions, isFunction, vaddr)
	return name, ok
}

// Variable returns the name of the variable that contains the ELF virtual address vaddr, as Name
// does for a function, and the offset of the address in it, in bytes. Thread-local variables have
// no address.
func (f *File) Variable(vaddr uint64) (name string, offset uint64, ok bool) {
	return f.name(&f.variables, isVariable, vaddr)
}

// name returns the name of the symbol that contains an address, and the offset in it.
func (f *File) name(
	symbols *namedSymbols, isWanted kindFilter, vaddr uint64,
) (name string, offset uint64, ok bool) {
	f.load(symbols, isWanted)
	t, i := symbols.find(vaddr)
	if t == nil {
		return "", 0, false
	}

	found := &t.symbols[i]
	name, ok = symbols.cache[found]
	if !ok {
		raw, err := t.name(i)
		f.problem(err)
		name = printed(raw)
		symbols.remember(found, name)
	}

	return name, vaddr - found.value, name != ""
}

// Size returns the bytes of code of the function that begins at a virtual
// address, 0 if the best symbol table lists no such function or not its size.
func (f *File) Size(vaddr uint64) uint64 {
	f.load(&f.functions, isFunction)
	t, i := f.functions.find(vaddr)
	if t == nil || t.symbols[i].value != vaddr {
		return 0
	}

	return t.symbols[i].size()
}

// TableBytes is the memory of the symbol tables and of the names that were read, in bytes. A nil
// File has none.
func (f *File) TableBytes() int {
	if f == nil {
		return 0
	}
	unpacked := 0
	if f.mini != nil {
		unpacked = int(f.mini.size)
	}
	return unpacked + f.functions.bytes() + f.variables.bytes()
}

func (s *namedSymbols) bytes() int {
	const symbolBytes = int(unsafe.Sizeof(symbol{}))
	sum := s.cached
	for _, t := range s.tables {
		sum += symbolBytes*len(t.symbols) + 8*len(t.last)
	}
	return sum
}

// Err returns the errors that cost names so far, nil if none did: damaged sections and symbol
// tables, debug files that were refused, strings that could not be read. A file that merely is
// stripped is not an error.
func (f *File) Err() error { return errors.Join(f.problems...) }

// load reads the wanted symbols of the best symbol tables, once.
func (f *File) load(symbols *namedSymbols, isWanted kindFilter) {
	if symbols.loaded {
		return
	}

	symbols.loaded = true
	if f.findDebug != nil {
		f.findDebug()
		f.findDebug = nil
	}

	type source struct {
		image   *image
		section symbolSection
	}

	sources := []source{{f.image, f.image.symtab}}
	if f.debug != nil {
		sources = append(sources, source{f.debug.image, f.debug.image.symtab})
	}

	if f.mini != nil {
		sources = append(sources, source{f.mini, f.mini.symtab})
	}
	sources = append(sources, source{f.image, f.image.dynsym})
	for _, s := range sources {
		t, err := readTable(s.image, s.section, isWanted)
		f.problem(err)
		if len(t.symbols) > 0 {
			symbols.tables = append(symbols.tables, t)
		}
		if len(t.symbols) > 0 && s.image != f.mini {
			return
		}
	}
}

// remember caches the name of a symbol.
func (s *namedSymbols) remember(of *symbol, name string) {
	const overhead = 64 // bytes of an entry of the map, roughly
	if s.cached += len(name) + overhead; s.cache == nil || s.cached > maxCache {
		s.cache = make(map[*symbol]string)
		s.cached = len(name) + overhead
	}

	s.cache[of] = name
}

// problem keeps err for Err, up to maxProblems of them.
func (f *File) problem(err error) {
	if err != nil && len(f.problems) < maxProblems {
		f.problems = append(f.problems, err)
	}
}
