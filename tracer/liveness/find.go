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

// findAllocator finds the malloc that a process uses. The error wraps errUnknown or the reason of
// the allocator, or the errors of probe.Resolve.
func findAllocator(p *process.Process, maps []process.Mapping) (heap.Allocator, error) {
	library, err := mallocLibrary(p, maps)
	if err != nil {
		return nil, err
	}
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
	library, err := mallocLibrary(p, maps)
	if err != nil {
		return Malloc{}, err
	}
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

// mallocLibrary returns the mapping of the file whose malloc the process uses. The shim hands on
// the next one's results.
func mallocLibrary(p *process.Process, maps []process.Mapping) (process.Mapping, error) {
	isShim := func(m process.Mapping) bool { return shim.HasName(m.Path) }
	files, err := probe.Resolve(p, slices.DeleteFunc(slices.Clone(maps), isShim))
	if err != nil {
		return process.Mapping{}, err
	}
	for _, file := range files {
		for _, s := range file.Sites {
			if s.Function.Name == "malloc" {
				return file.Mapping, nil
			}
		}
	}
	return process.Mapping{}, probe.ErrNoAllocator
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
