package liveness

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// An Allocator is the malloc of a process. It is valid until the process executes another program.
type Allocator interface {
	// Check returns the state of each object, all of them allocated before the call.
	//
	// maps are those of the process, read after the objects were allocated. Check returns the
	// errors of memory. It is not safe for concurrent use.
	Check(memory mem.Reader, maps []process.Mapping, objects []Object) ([]State, error)

	// SizeClass returns how many bytes an object of a size takes. Objects of one class can take
	// each other's place.
	SizeClass(size uint64) uint64
}

// glibc is the malloc of glibc in a process.
type glibc struct {
	mainArena uint64 // address
	layout    mallocState
	tcacheKey uint64 // tcache_key, from 2.34 on; 0 until Check has learned it
	// hasLargeTcacheBins is set if tcaches keep large chunks, up to twice as large as the request.
	hasLargeTcacheBins bool
}

// Reasons for which the objects of a process cannot be checked.
var (
	ErrUnknown = errors.New("its malloc is neither glibc's nor jemalloc nor mimalloc")
	ErrNoArena = errors.New("no arena of malloc in a layout that is known (glibc 2.30 to 2.43 are)")
)

const (
	maxVariables       = 16 << 20 // bytes searched in each range of variables
	maxArenaCandidates = 64       // addresses that may be the main arena; a program can forge them
)

// FindAllocator finds the malloc that a process uses. The error wraps one of the reasons above, or
// those of probe.Resolve.
func FindAllocator(p *process.Process, maps []process.Mapping) (Allocator, error) {
	library, err := mallocLibrary(p, maps)
	if err != nil {
		return nil, err
	}

	name, err := nameOf(p, library)
	switch {
	case err != nil:
		return nil, err
	case name == Jemalloc:
		return findJemalloc(p, maps, library.File())
	case name == Mimalloc:
		return findMimalloc(p, maps)
	case name == Glibc:
		return findGlibc(p, maps, library)
	}
	return nil, fmt.Errorf("%w but that of %s", ErrUnknown, library.Path)
}

// Names of mallocs. FindAllocator finds all but tcmalloc, in the versions that are known.
const (
	Glibc    = "glibc"
	Jemalloc = "jemalloc"
	Mimalloc = "mimalloc"
	Tcmalloc = "tcmalloc"
)

// A Malloc names the malloc of a process.
type Malloc struct {
	// Name is one of the names above; empty: another one. Path is its file.
	Name, Path string
}

// Identify names the malloc that a process uses. The error wraps those of probe.Resolve.
func Identify(p *process.Process, maps []process.Mapping) (Malloc, error) {
	library, err := mallocLibrary(p, maps)
	if err != nil {
		return Malloc{}, err
	}
	name, err := nameOf(p, library)
	return Malloc{name, library.Path}, err
}

func findGlibc(
	p *process.Process, maps []process.Mapping, library process.Mapping,
) (Allocator, error) {
	for _, s := range variables(maps, library.File()) {
		content, err := mem.ReadRange(p, s)
		if err != nil {
			return nil, err
		}
		a, err := findMainArena(p, s.Start, content)
		if err != nil {
			return nil, err
		}
		if a != nil {
			tunables := p.Environment(tunablesVariable)[tunablesVariable]
			a.hasLargeTcacheBins = strings.Contains(tunables, "tcache_max")
			return a, nil
		}
	}
	return nil, fmt.Errorf("find malloc's main arena in %s: %w", library.Path, ErrNoArena)
}

const tunablesVariable = "GLIBC_TUNABLES"

// mallocLibrary returns the mapping of the file whose malloc the process uses. The shim hands on
// what the next one returns.
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

// nameOf returns which malloc a file has, by functions that others lack; empty: one that is not
// known.
func nameOf(p *process.Process, m process.Mapping) (string, error) {
	f, err := p.OpenMapped(m)
	if err != nil {
		return "", err
	}
	defer f.Close()

	file, err := symbol.Open(f, m.Path)
	if err != nil {
		return "", err
	}
	marks := map[string]string{
		"dallocx": Jemalloc, "mi_free": Mimalloc, "tc_free": Tcmalloc,
		"gnu_get_libc_version": Glibc,
	}
	for function, name := range marks {
		if _, ok := file.Export(function); ok {
			return name, nil
		}
	}

	// A static program exports none. It may lack the last function, but not what free calls.
	marks["_int_free"] = Glibc
	wanted := make(map[string]bool)
	for function := range marks {
		wanted[function] = true
	}
	found, err := file.Functions(symbol.Symtab, wanted)
	order := []string{"dallocx", "mi_free", "tc_free", "gnu_get_libc_version", "_int_free"}
	for _, function := range order {
		if _, ok := found[function]; ok {
			return marks[function], err
		}
	}
	return "", err
}

// variables returns the memory of a file's variables: its writable mappings (.data), and the
// anonymous ones that follow them (.bss).
func variables(maps []process.Mapping, file process.FileID) mem.Spans {
	var spans mem.Spans
	for _, m := range maps {
		last := len(spans) - 1
		follows := last >= 0 && spans[last].End == m.Start
		switch {
		case !m.Read || !m.Write || m.Shared:
		case follows && (m.File() == file || m.Path == ""):
			spans[last].End = m.End
		case m.File() == file:
			spans = append(spans, mem.Span{Start: m.Start, End: m.End})
		}
	}
	return spans
}

// findMainArena finds main_arena in the variables of the C library, which begin at an address. It
// returns nil if there is none. Two things mark main_arena: its bins, and the ring of arenas, which
// leads back to it.
func findMainArena(memory mem.Reader, start uint64, content []byte) (*glibc, error) {
	for _, layout := range mallocStates {
		tried := 0
		for at := 0; at+int(layout.size) <= len(content) && tried < maxArenaCandidates; at += 8 {
			address := start + uint64(at)
			if !mayBeBins(content[at+int(layout.bins):], address+layout.bins) {
				continue
			}

			tried++
			a := &glibc{mainArena: address, layout: layout}
			closed, err := a.isRing(memory)
			if err != nil {
				return nil, err
			}
			if closed {
				return a, nil
			}
		}
	}
	return nil, nil
}

// mayBeBins reports whether words at an address may be the bins of a malloc_state. All bins may
// be full, and change during the read, but for the last one: no size belongs to it, so that it is
// always empty, and its links lead to itself.
func mayBeBins(content []byte, address uint64) bool {
	const last = nBins - 1
	self := binAt(address, last)
	if mem.Word(content, binSize*last) != self || mem.Word(content, binSize*last+8) != self {
		return false
	}

	for i := range 2 * last {
		if link := mem.Word(content, 8*i); link == 0 || link%8 != 0 || link >= maxAddress {
			return false
		}
	}
	return true
}

// isRing reports whether the links next lead from the main arena back to it.
func (a *glibc) isRing(memory mem.Reader) (bool, error) {
	address := a.mainArena
	for range maxArenas {
		next, err := mem.PeekOne(memory, address+a.layout.next, 8)
		if err != nil || next == nil {
			return false, err
		}

		address = mem.Word(next, 0)
		if address == a.mainArena {
			return true, nil
		}
		if address == 0 || address%mallocAlignment != 0 {
			return false, nil
		}
	}
	return false, nil
}
