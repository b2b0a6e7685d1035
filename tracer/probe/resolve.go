package probe

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// FileSites is one file of a process and the sites in it.
type FileSites struct {
	// Mapping is the one through which the file is opened.
	Mapping process.Mapping
	// Path is where the kernel finds the very file that was read, until the process is closed.
	Path  hostile.HeldPath
	Sites []Site
	// Unprobed are functions that cannot be probed, each with its reason, for people.
	Unprobed []string

	// Hidden is the name of an allocator that the file has, and whose functions cannot be found, since
	// the file has no symbols of them; empty: there is none that is known.
	Hidden string

	// IsOwn: malloc of the file serves its own code alone, as another file's comes first in the
	// search order.
	IsOwn bool

	isLibc      bool // the C library, or a static program
	isAllocator bool // a library, not the C library, that defines malloc
}

// Functions returns the names of the probed functions.
func (f FileSites) Functions() []string {
	var names []string
	for _, s := range f.Sites {
		if !s.Function.isExit() {
			names = append(names, s.Function.Name)
		}
	}
	return names
}

// Reasons for which a process's allocator cannot be probed.
var (
	ErrNoAllocator = errors.New("no malloc symbol in any of its files (a static, stripped program?)")
	ErrGo          = errors.New("a Go program, whose allocator is not malloc")
	ErrManyNames   = errors.New("its libraries claim too many symbols")
	Err32Bit       = symbol.Err32Bit
)

// Resolve finds the allocator functions that the process really uses. Like the dynamic linker, it
// takes for each name the first file in search order that defines it (symbol interposition,
// ld.so(8)). For malloc and its relatives the search ends at the C library, which defines all of
// them. Other files may have allocators for their own code: see addOwnMalloc. Functions that only
// call others of the allocator are not probed; the others are.
func Resolve(p *process.Process, maps []process.Mapping) ([]FileSites, error) {
	order, err := searchOrder(p, maps)
	if err != nil {
		return nil, err
	}
	others := otherFiles(maps, order)
	if known := resolved.of(p, order, others); known != nil {
		return known, nil
	}
	found, err := resolve(p, order, others)
	if err != nil {
		return nil, err
	}
	resolved.keep(p, resolution{order, others, found})
	return resolved.of(p, order, others), nil
}

// resolve is Resolve with the files in search order, and the others.
func resolve(p *process.Process, order, others []process.Mapping) ([]FileSites, error) {
	found := definitions{program: order[0].File(), process: p, fileOf: make(map[string]int)}
	found.isStatic = len(order) == 1
	defer found.close()
	for _, mapping := range order {
		if found.read > maxTableBytes {
			return nil, ErrManyNames
		}
		if err := found.addFile(mapping); err != nil {
			return nil, err
		}
	}

	found.addOthers(others)

	switch {
	case found.has("malloc") && found.has("free"):
	case slices.ContainsFunc(found.files, isGo):
		return nil, ErrGo
	default:
		return nil, ErrNoAllocator
	}

	if err := found.dropForwardingOperators(); err != nil {
		return nil, err
	}
	return found.sites()
}

func openFile(p *process.Process, mapping process.Mapping) (*hostile.File, *symbol.File, error) {
	f, err := p.OpenMapped(mapping)
	if err != nil {
		return nil, nil, err
	}
	file, err := symbol.Open(f, mapping.Path)
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, file, nil
}

// resolveFile finds functions in one mapped file, and their sites.
func resolveFile(
	p *process.Process, mapping process.Mapping, find func(*symbol.File) ([]definition, error),
) (FileSites, error) {
	opened, file, err := openFile(p, mapping)
	if err != nil {
		return FileSites{}, err
	}
	defer opened.Close()

	found, err := find(file)
	if err != nil {
		return FileSites{}, err
	}

	result := FileSites{Mapping: mapping}
	if result.Path, err = p.Hold(opened); err != nil {
		return FileSites{}, err
	}
	code := &analyzer{file: file}
	if slices.ContainsFunc(found, func(d definition) bool { return d.function.isCUDA() }) {
		if code.imports, err = file.Imports(neverReturns); err != nil {
			return FileSites{}, fmt.Errorf("read imports of %s: %w", mapping.Path, err)
		}
	}
	for _, f := range found {
		site, err := siteAt(file, f.function, f.address)
		if errors.Is(err, errMisaligned) {
			result.Unprobed = append(result.Unprobed, f.function.Name+": "+err.Error())
			continue
		}
		if err == nil && f.function.isCUDA() {
			err = code.findExits(&site, code.controlFlow(f.address))
		}
		if err != nil {
			return FileSites{}, fmt.Errorf("probe %s in %s: %w", f.function.Name, mapping.Path, err)
		}
		result.Sites = append(result.Sites, site)
	}
	return result, nil
}

// definitions are the allocator functions by the files that define them, in search order.
type definitions struct {
	process   *process.Process
	program   process.FileID
	isStatic  bool
	files     []*definingFile
	fileOf    map[string]int // index in files by function name
	afterLibc bool           // the C library has been added
	read      uint64         // bytes of symbol tables, but for the program's
}

// maxTableBytes bounds the bytes read of the symbol tables of libraries: any number of them can
// precede the C library, or lack a hash table. One that exports 100,000 C++ functions has 20 MB.
const maxTableBytes = 1 << 30

// A definingFile defines at least one allocator function.
type definingFile struct {
	mapping process.Mapping
	opened  *hostile.File
	image   *symbol.File
	defined []definition
	isLibc  bool
	isOwn   bool // see FileSites, as hidden
	hidden  string
}

// A definition is one function of a file.
type definition struct {
	function Function
	names    []string // all of its names
	address  uint64   // virtual, as in the file
}

func (d *definitions) has(name string) bool { _, ok := d.fileOf[name]; return ok }

func (d *definitions) close() {
	for _, f := range d.files {
		f.opened.Close()
	}
}

// addFile adds the functions of a file that no earlier file defines. Files after the C library
// that cannot be read are ignored.
func (d *definitions) addFile(mapping process.Mapping) error {
	opened, image, err := openFile(d.process, mapping)
	if err != nil && d.afterLibc {
		return nil
	}
	if err != nil {
		return err
	}

	file := &definingFile{mapping: mapping, opened: opened, image: image}
	isProgram := mapping.File() == d.program
	if image.IsGo() {
		file.hidden = growth.AllocatorGo
	}
	defer func() {
		if !isProgram {
			d.read += image.BytesRead()
		}
	}()
	if !d.afterLibc {
		err = d.addMalloc(file)
	}
	if err == nil {
		err = d.addAllocatorAPIs(file)
	}
	if err == nil && !file.isLibc {
		_ = d.addOwnMalloc(file) // its other functions count without it
	}

	if err != nil || len(file.defined) == 0 && file.hidden == "" {
		opened.Close()
	} else {
		d.files = append(d.files, file)
	}
	if err != nil {
		isOfFile := func(_ string, i int) bool { return i == len(d.files) }
		maps.DeleteFunc(d.fileOf, isOfFile)
		return fmt.Errorf("read symbols of %s: %w", mapping.Path, err)
	}
	return nil
}

// libcStart is a function that only the C library defines.
const libcStart = "__libc_start_main"

// interposedNames are the names of which the first definition serves all files.
var interposedNames = func() map[string]bool {
	names := namesOf(slices.Concat(Functions, optional, operators))
	names[libcStart] = true
	return names
}()

func namesOf(functions []Function) map[string]bool {
	names := make(map[string]bool)
	for _, f := range functions {
		names[f.Name] = true
	}
	return names
}

// addMalloc adds malloc and its relatives in a file.
func (d *definitions) addMalloc(file *definingFile) error {
	symbols, err := d.functions(file.image, interposedNames)
	if err != nil {
		return err
	}

	d.addFirst(file, Functions, symbols)
	if d.fileOf["free"] == len(d.files) && d.has("free") {
		d.addFirst(file, optional, symbols)
	}
	d.addFirst(file, operators, symbols)
	_, d.afterLibc = symbols[libcStart]
	file.isLibc = d.afterLibc
	return nil
}

// addAllocatorAPIs adds the functions in a file of allocators with names of their own.
func (d *definitions) addAllocatorAPIs(file *definingFile) error {
	for _, api := range allocatorAPIs {
		isProgram := file.mapping.File() == d.program
		if _, ok := file.image.Export(api.release); !ok && !isProgram {
			continue
		}

		wanted := namesOf(api.functions)
		symbols, err := file.image.Functions(symbol.Dynsym, wanted)
		if err == nil && isProgram {
			err = addUnexported(file.image, symbols, wanted)
		}
		if err != nil {
			return err
		}
		if _, ok := symbols[api.release]; ok {
			d.add(file, api.functions, symbols)
		}
	}

	return nil
}

// functions returns the addresses of the wanted functions that a file exports. A static program
// exports none; there all functions count.
func (d *definitions) functions(
	file *symbol.File, wanted map[string]bool,
) (map[string]uint64, error) {
	if d.isStatic {
		if defined, err := file.Functions(symbol.Symtab, wanted); err != nil || len(defined) > 0 {
			return defined, err
		}
	}
	return file.Functions(symbol.Dynsym, wanted)
}

// addUnexported adds functions of a library that was linked into the program: a program exports
// only symbols that other files refer to. Local functions are left out, as they may be parts of
// others or inlined into their callers.
func addUnexported(file *symbol.File, symbols map[string]uint64, wanted map[string]bool) error {
	return file.EachFunction(symbol.Symtab, func(name []byte, address uint64, isLocal bool) {
		if _, known := symbols[string(name)]; !known && !isLocal && wanted[string(name)] {
			symbols[string(name)] = address
		}
	})
}

// addFirst adds the functions that no file has defined before.
func (d *definitions) addFirst(
	file *definingFile, functions []Function, symbols map[string]uint64,
) {
	isNew := func(f Function) bool { return !d.has(f.Name) }
	d.add(file, filter(functions, isNew), symbols)
}

func isGo(f *definingFile) bool { return f.hidden == growth.AllocatorGo }

func filter(functions []Function, isWanted func(Function) bool) (wanted []Function) {
	for _, f := range functions {
		if isWanted(f) {
			wanted = append(wanted, f)
		}
	}
	return wanted
}

// add adds the functions that a file defines. Several names of one address are one function.
func (d *definitions) add(file *definingFile, functions []Function, symbols map[string]uint64) {
	for _, function := range functions {
		address, ok := symbols[function.Name]
		if !ok {
			continue
		}

		if !d.has(function.Name) {
			d.fileOf[function.Name] = len(d.files)
		}
		isSame := func(other definition) bool { return other.address == address }
		known := slices.IndexFunc(file.defined, isSame)
		if known < 0 {
			known = len(file.defined)
			file.defined = append(file.defined, definition{function: function, address: address})
		}
		file.defined[known].names = append(file.defined[known].names, function.Name)
	}
}

// dropForwardingOperators drops the C++ operators of files that import malloc, which call it.
func (d *definitions) dropForwardingOperators() error {
	isOperator := namesOf(operators)
	for i, file := range d.files {
		if i == d.fileOf["malloc"] || file.isOwn {
			continue
		}
		imports, err := file.image.Imports(func(name string) bool { return name == "malloc" })
		if err != nil {
			return fmt.Errorf("read imports of %s: %w", file.mapping.Path, err)
		}
		if len(imports) == 0 {
			continue
		}

		file.defined = slices.DeleteFunc(file.defined, func(f definition) bool {
			isDropped := isOperator[f.function.Name]
			if isDropped {
				delete(d.fileOf, f.function.Name)
			}
			return isDropped
		})
	}

	return nil
}

// sites chooses the sites in each file, and numbers them.
func (d *definitions) sites() ([]FileSites, error) {
	allocators := make(map[string]bool)
	for name := range d.fileOf {
		allocators[name] = true
	}

	var results []FileSites
	called := make(map[string]bool)
	for i, file := range d.files {
		result, err := d.sitesIn(file, allocators, called)
		if err != nil {
			return nil, err
		}
		isProgram := file.mapping.File() == d.program
		result.isLibc, result.IsOwn, result.Hidden = file.isLibc, file.isOwn, file.hidden
		result.isAllocator = d.fileOf["malloc"] == i && !file.isLibc && !isProgram
		if len(result.Sites)+len(result.Unprobed) > 0 || result.Hidden != "" {
			results = append(results, result)
		}
	}

	number := 0
	for _, result := range results {
		for i := range result.Sites {
			number++
			site := &result.Sites[i]
			site.number = number
			site.called = slices.ContainsFunc(site.names, func(name string) bool { return called[name] })
		}
	}

	return results, nil
}

// sitesIn chooses the sites in one file. It adds the names of functions that others call to called.
func (d *definitions) sitesIn(
	file *definingFile, allocators, called map[string]bool,
) (FileSites, error) {
	result := FileSites{Mapping: file.mapping}
	var err error
	if result.Path, err = d.process.Hold(file.opened); err != nil {
		return result, err
	}
	imports, err := file.image.Imports(func(string) bool { return true })
	if err != nil {
		return result, fmt.Errorf("read imports of %s: %w", file.mapping.Path, err)
	}

	code := &analyzer{
		file: file.image, imports: imports, allocators: allocators, addresses: make(map[uint64]bool),
	}
	names := make(map[uint64]string)
	for _, f := range file.defined {
		code.addresses[f.address], names[f.address] = true, f.names[0]
	}

	chosen := siteCollector{code: code, taken: make(map[uint64]bool), into: &result}
	for _, f := range file.defined {
		flow, err := chosen.add(f)
		if err != nil {
			return result, fmt.Errorf("probe %s in %s: %w", f.function.Name, file.mapping.Path, err)
		}
		if flow == nil {
			continue
		}
		maps.Copy(called, flow.calls)
		for address := range flow.callAddresses {
			called[names[address]] = true
		}
	}
	return result, nil
}

// A siteCollector collects the sites of one file.
type siteCollector struct {
	code  *analyzer
	taken map[uint64]bool // by offset in the file
	into  *FileSites
}

// add adds the site of a function, and the sites of its returns if it may throw, and returns its
// control flow. A function that is not probed has none of these.
func (s *siteCollector) add(f definition) (*controlFlow, error) {
	if !f.function.AlwaysProbed && s.code.forwards(f.function, f.address) {
		return nil, nil
	}

	flow := s.code.controlFlow(f.address)
	if f.function.Form == bpf.CallMalloc && flow.callsAny() {
		f.function.Form = bpf.CallValloc
	}

	site, err := siteAt(s.code.file, f.function, f.address)
	if errors.Is(err, errMisaligned) {
		s.into.Unprobed = append(s.into.Unprobed, f.function.Name+": "+err.Error())
		return nil, nil
	}
	if err == nil {
		err = s.code.findExits(&site, flow)
	}
	if err != nil {
		return nil, err
	}
	if f.function.Exits && len(site.exits) == 0 {
		s.into.Unprobed = append(s.into.Unprobed, f.function.Name+unknownExits)
		return nil, nil
	}

	site.names = f.names
	s.take(site)
	if f.function.Exits {
		for _, exit := range site.exits {
			exit.Reason = "a return probe would stop an exception"
			s.take(exit)
		}
	}
	return flow, nil
}

// unknownExits follows the name of a function.
const unknownExits = ": where it returns is not known"

// findExits adds the instructions by which the function of a site returns, unless there are too
// many.
func (a *analyzer) findExits(site *Site, flow *controlFlow) error {
	if len(flow.returns)+len(flow.memsets) > maxReturns {
		return nil
	}

	name := "return of " + site.Function.Name
	add := func(addresses []uint64, form bpf.CallForm) error {
		for _, address := range addresses {
			code, offset, err := a.file.Code(address, 1)
			if err != nil {
				return err
			}
			exit := Function{Name: name, Form: form}
			site.exits = append(site.exits,
				Site{Function: exit, Offset: offset, Emulated: emulated(code[:1])})
		}
		return nil
	}
	if err := add(flow.returns, bpf.CallExit); err != nil {
		return err
	}
	if err := add(flow.memsets, bpf.CallExitMemset); err != nil {
		return err
	}

	// A function may also end in others of the allocator, whose returns are its own.
	endsInOthers := !flow.isIncomplete && flow.callsAny() && len(flow.returns) == 0
	site.hasExits = len(site.exits) > 0 || endsInOthers
	site.hasOtherExits = flow.isIncomplete
	return nil
}

// WithoutReturnProbes returns the files with the returns of all functions followed by the
// instructions that return. Functions of which these are not known move to Unprobed. It is an error
// if malloc, a function that also frees, or one of CUDA's driver is among them.
func WithoutReturnProbes(files []FileSites) ([]FileSites, error) {
	files = slices.Clone(files)
	for i := range files {
		if err := files[i].replaceReturnProbes(); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (f *FileSites) replaceReturnProbes() error {
	replaced := siteCollector{taken: make(map[uint64]bool), into: &FileSites{}}
	f.Unprobed = slices.Clone(f.Unprobed)
	for _, site := range f.Sites {
		if !site.Function.returns() {
			replaced.take(site)
			continue
		}

		function := &site.Function
		isNeeded := slices.Contains(site.names, "malloc") || function.resizes() || function.isCUDA()
		if !site.hasExits && isNeeded {
			return fmt.Errorf("follow %s in %s without return probes%s", function.Name, f.Mapping.Path,
				unknownExits)
		}
		if !site.hasExits {
			f.Unprobed = append(f.Unprobed, function.Name+unknownExits)
			continue
		}

		function.Exits = true
		if site.hasOtherExits {
			site.Reason += "; some of its returns are not known"
		}
		replaced.take(site)
		for _, exit := range site.exits {
			exit.Function.Tensor = function.Tensor
			exit.Reason = "return probes are not safe in this process"
			replaced.take(exit)
		}
	}

	f.Sites = replaced.into.Sites
	return nil
}

// take adds a site, unless its instruction is probed already.
func (s *siteCollector) take(site Site) {
	if !s.taken[site.Offset] {
		s.taken[site.Offset] = true
		s.into.Sites = append(s.into.Sites, site)
	}
}
