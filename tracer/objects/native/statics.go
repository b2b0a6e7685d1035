// Package native reads from outside the references to memory in native code: static variables and
// the stacks of threads. It sets no probe, stops nothing and writes nothing. Files and memory are
// hostile input: any contents cost bounded work and yield some answer.
package native

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// Bounds on the work that a process can cause Statics.
const (
	maxModules     = 4096     // loaded ELF files; a trainer has 300
	maxSteps       = 1 << 20  // mappings that are visited for the variables of all of them
	maxOpenFiles   = 256      // whose symbols were needed
	maxSymbolBytes = 64 << 20 // of their tables; the table of a large file can take more
)

// Statics are the static variables of a process: .data and .bss of its program and libraries. They
// are not safe for concurrent use.
type Statics struct {
	process    *process.Process
	debugFiles *symbol.DebugFiles
	variables  []variables                     // sorted, disjoint
	files      map[process.FileID]*symbol.File // that were opened; nil: one cannot be
	steps      int
	runtime    string // whose references cannot be read; empty: none
	// interpreter is another one than CPython, whose variables cannot be read; empty: none.
	interpreter string
}

// variables are writable memory of a module.
type variables struct {
	mem.Span
	*module
}

// A module is an ELF file where the process has loaded it.
type module struct {
	mapping     process.Mapping // executable
	bias        uint64          // addresses in the process less those in the file
	interpreter string          // that the file has; empty: none
}

// Open finds the static variables of a process. maps are the present ones. A file that cannot be
// opened has none; the error is of the first such file, if there is no other. The caller closes the
// Statics before the process.
func Open(p *process.Process, maps []process.Mapping) (*Statics, error) {
	type place struct {
		file process.FileID
		bias uint64
	}
	s := &Statics{
		process: p, debugFiles: symbol.NewDebugFiles(), files: make(map[process.FileID]*symbol.File),
		runtime: runtimeOfProgram(p),
	}
	headers := make(map[process.FileID]*header)
	seen := make(map[place]bool)
	var problem error

	for _, m := range maps {
		if !m.Execute || !m.IsFile() || len(headers) == maxModules || len(seen) == maxModules {
			continue
		}
		h, ok := headers[m.File()]
		if !ok {
			var err error
			h, err = readHeader(p, m)
			headers[m.File()], problem = h, cmp.Or(problem, err)
		}
		if h == nil {
			continue
		}
		s.runtime = cmp.Or(s.runtime, h.runtime)
		if h.interpreter != "CPython" {
			s.interpreter = cmp.Or(s.interpreter, h.interpreter)
		}

		bias, ok := h.symbols.Bias(m.Start, m.Offset)
		at := place{m.File(), bias}
		if !ok || seen[at] {
			continue
		}
		seen[at] = true
		s.add(maps, &module{m, bias, h.interpreter}, h.symbols)
	}

	if len(seen) > 0 {
		problem = nil
	}
	s.sort()
	return s, problem
}

// A header has the facts in the headers of a file. The file itself is closed.
type header struct {
	symbols     *symbol.File
	interpreter string // as module.interpreter
	runtime     string // as Statics.Runtime
}

func readHeader(p *process.Process, m process.Mapping) (*header, error) {
	f, err := p.OpenMapped(m)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	file, err := symbol.Open(f, m.Path)
	if err != nil {
		return nil, err
	}
	return &header{file, interpreterOf(m, file), runtimeOf(m, file)}, nil
}

// add adds the writable memory of a module, as the program headers of its file have it: .data, and
// .bss, which has no file. Memory that the kernel has merged with it is none.
func (s *Statics) add(maps []process.Mapping, m *module, file *symbol.File) {
	for _, segment := range file.Writable() {
		start := m.bias + segment.Vaddr
		end := start + segment.Memsz
		first, _ := slices.BinarySearchFunc(maps, start+1, func(m process.Mapping, end uint64) int {
			return cmp.Compare(m.End, end)
		})

		for at := start; first < len(maps) && s.steps < maxSteps; first++ {
			found := maps[first]
			isOwn := found.File() == m.mapping.File() || !found.IsFile()
			if s.steps++; found.Start > at || at >= end || !isOwn {
				break
			}
			if found.Read && found.Write && !found.Shared {
				span := mem.Span{Start: at, End: min(end, found.End)}
				s.variables = append(s.variables, variables{span, m})
			}
			at = found.End
		}
	}
}

// sort sorts the variables, and leaves out those that overlap others: forged ones.
func (s *Statics) sort() {
	slices.SortStableFunc(s.variables, func(a, b variables) int {
		return cmp.Compare(a.Start, b.Start)
	})
	kept := s.variables[:0]
	for _, v := range s.variables {
		if len(kept) == 0 || kept[len(kept)-1].End <= v.Start {
			kept = append(kept, v)
		}
	}
	s.variables = kept
}

// Spans returns the memory of all static variables.
func (s *Statics) Spans() mem.Spans {
	spans := make([]mem.Span, len(s.variables))
	for i, v := range s.variables {
		spans[i] = v.Span
	}
	return mem.MergeSpans(spans)
}

// find returns the variables among which an address is.
func (s *Statics) find(address uint64) (variables, bool) {
	i, ok := slices.BinarySearchFunc(s.variables, address, func(v variables, address uint64) int {
		switch {
		case address < v.Start:
			return 1
		case address >= v.End:
			return -1
		}
		return 0
	})
	if !ok {
		return variables{}, false
	}
	return s.variables[i], true
}

// IsInterpreter reports whether an address is in a variable of the file of an interpreter, such as
// libpython. Most of them are the interpreter's own state.
func (s *Statics) IsInterpreter(address uint64) bool {
	v, ok := s.find(address)
	return ok && v.interpreter != ""
}

// Find names the static variable that an address is in. file is its path as the process sees it.
// symbol is demangled, and offset is the offset of the address in it, in bytes. Without a symbol,
// offset is the virtual address in the file, as nm(1) prints it: for a library, that is where its
// mapping begins plus offset. ok is false if the address is in none.
func (s *Statics) Find(address uint64) (file, symbol string, offset uint64, ok bool) {
	v, ok := s.find(address)
	if !ok {
		return "", "", 0, false
	}

	file, virtual := v.mapping.Path, address-v.bias
	f := s.open(v.mapping)
	if f != nil {
		symbol, offset, _ = f.Variable(virtual)
	}
	s.limit(f)
	if symbol == "" {
		offset = virtual
	}

	return file, symbol, offset, true
}

// Constant names the constant at an address of a mapping, such as "vtable for N::C"; empty: it has
// no name, or its file no variables.
func (s *Statics) Constant(m process.Mapping, address uint64) string {
	i := slices.IndexFunc(s.variables, func(v variables) bool {
		return v.mapping.File() == m.File()
	})
	if i < 0 {
		return ""
	}
	v := s.variables[i]
	f := s.open(v.mapping)
	defer s.limit(f)
	if f == nil {
		return ""
	}

	name, _, _ := f.Variable(address - v.bias)
	return name
}

// open opens the file of a mapping, unless it is open; nil: it cannot be opened.
func (s *Statics) open(m process.Mapping) *symbol.File {
	f, ok := s.files[m.File()]
	if ok {
		return f
	}

	if file, err := s.process.OpenMapped(m); err == nil {
		path := strings.TrimSuffix(m.Path, " (deleted)")
		f, _ = s.debugFiles.New(file, path, s.process.HoldRoot())
	}
	s.files[m.File()] = f
	return f
}

// limit closes the other files if they are too many, or their tables too large.
func (s *Statics) limit(used *symbol.File) {
	sum := 0
	for _, f := range s.files {
		sum += f.TableBytes()
	}

	if sum <= maxSymbolBytes && len(s.files) <= maxOpenFiles {
		return
	}
	for id, f := range s.files {
		if f == nil || f != used {
			_ = f.Close() // it was only read
			delete(s.files, id)
		}
	}
}

// Close closes the files.
func (s *Statics) Close() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	clear(s.files)
	return errors.Join(errs...)
}
