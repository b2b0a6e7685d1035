package liveness

import (
	"errors"
	"fmt"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/allocators"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// errUnknown means that the objects of a process cannot be checked, whatever its version of malloc.
var errUnknown = errors.New("its malloc is neither glibc's nor jemalloc nor mimalloc")

// AllocatorOf finds the malloc that a process uses, and the mallocs of libraries that have one of
// their own.
func AllocatorOf(p *process.Process, maps []process.Mapping) ProcessAllocator {
	a := ProcessAllocator{name: allocators.OfFiles(maps), files: executables(maps)}
	libraries, err := mallocLibraries(p, maps)
	if err != nil {
		a.err = err
		return a
	}

	a.Allocator, a.err = findIn(p, maps, libraries[0])
	for _, library := range libraries[1:] {
		other, err := findIn(p, maps, library)
		if err != nil {
			a.othersErr = err
			break
		}
		a.others = append(a.others, other)
	}
	return a
}

// Renewed returns the allocator as it is with the libraries that were loaded, or first used, since
// it was found. The zero value was never found.
func (a ProcessAllocator) Renewed(
	p *process.Process, maps []process.Mapping,
) ProcessAllocator {
	isUnused := errors.Is(a.othersErr, heap.ErrUnknownLayout)
	if a.files != nil && !isUnused && slices.Equal(a.files, executables(maps)) {
		return a
	}
	return AllocatorOf(p, maps)
}

// executables are the files whose code is mapped; never nil.
func executables(maps []process.Mapping) []process.FileID {
	files := []process.FileID{}
	for _, m := range maps {
		if m.Execute && m.IsFile() {
			files = append(files, m.File())
		}
	}
	return files
}

// findIn finds the malloc of a file. The error wraps errUnknown or the reason of the allocator, or
// is from reading the file.
func findIn(
	p *process.Process, maps []process.Mapping, library process.Mapping,
) (heap.Allocator, error) {
	known, err := allocatorOf(p, library)
	if err != nil {
		return nil, err
	}

	if known == nil || known.Find == nil {
		return nil, fmt.Errorf("%w but that of %s", errUnknown, library.Path)
	}
	return known.Find(p, maps, library)
}

// A Malloc names the malloc of a process.
type Malloc struct {
	// Name is one of allocators.All; empty: another one. Path is its file.
	Name, Path string
	// Limit is the limit of the findings of bursts in its heap.
	Limit growth.HeapLimit
}

// Identify names the malloc that a process uses. The error wraps errors of probe.Resolve.
func Identify(p *process.Process, maps []process.Mapping) (Malloc, error) {
	libraries, err := mallocLibraries(p, maps)
	if err != nil {
		return Malloc{}, err
	}
	library := libraries[0]
	m := Malloc{Path: library.Path, Limit: growth.HeapUnchecked}
	known, err := allocatorOf(p, library)
	if known == nil {
		return m, err
	}

	m.Name, m.Limit = known.Name, known.Limit
	if known.Find != nil && !known.InLibc { // the C library's is there before its first object
		if _, err := known.Find(p, maps, library); errors.Is(err, heap.ErrUnknownLayout) {
			m.Limit = growth.HeapUnknownVersion
		}
	}
	return m, err
}

// mallocLibraries returns the mappings of the files that have a malloc, the one that the process
// uses first. The shim hands on the next one's results.
func mallocLibraries(
	p *process.Process, maps []process.Mapping,
) (libraries []process.Mapping, err error) {
	isShim := func(m process.Mapping) bool { return shim.HasName(m.Path) }
	files, err := probe.Resolve(p, slices.DeleteFunc(slices.Clone(maps), isShim))
	if err != nil {
		return nil, err
	}

	for _, file := range files {
		isMalloc := func(s probe.Site) bool { return s.Function.Name == "malloc" }
		if slices.ContainsFunc(file.Sites, isMalloc) {
			libraries = append(libraries, file.Mapping)
		}
	}
	if len(libraries) == 0 {
		return nil, probe.ErrNoAllocator
	}
	return libraries, nil
}

// allocatorOf returns which malloc a file has, by functions that others lack; nil: none that is
// known.
func allocatorOf(p *process.Process, m process.Mapping) (*allocators.Allocator, error) {
	f, err := p.OpenMapped(m)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	file, err := symbol.Open(f, m.Path)
	if err != nil {
		return nil, err
	}
	exports := func(function string) bool {
		_, ok := file.Export(function)
		return ok
	}
	if known := withFunction(exports); known != nil {
		return known, nil
	}

	// A static program exports none. Its symbol table is read only for this, as it may be large.
	wanted := make(map[string]bool)
	for _, known := range allocators.All {
		for _, function := range known.Functions {
			wanted[function] = true
		}
	}

	found, err := file.Functions(symbol.Symtab, wanted)
	return withFunction(func(function string) bool { _, ok := found[function]; return ok }), err
}

// withFunction returns the malloc one of whose functions is in a file; nil: none.
func withFunction(isInFile func(string) bool) *allocators.Allocator {
	for i, known := range allocators.All {
		if slices.ContainsFunc(known.Functions, isInFile) {
			return &allocators.All[i]
		}
	}
	return nil
}
