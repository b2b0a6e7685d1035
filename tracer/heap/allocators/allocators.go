// Package allocators lists the known mallocs. A new one is a package beside this one, and a line
// here. The functions that its probes need are in tracer/probe.
package allocators

import (
	"path/filepath"
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/heap/jemalloc"
	"github.com/allocscope/allocscope/tracer/heap/mimalloc"
	"github.com/allocscope/allocscope/tracer/process"
)

// An Allocator is a malloc that is known.
type Allocator struct {
	Name string
	// InLibc is set for the malloc of a C library: it is in the same file as much else.
	InLibc bool
	// Files are prefixes of the names of its files.
	Files []string
	// Functions show that a file has it. The first one frees memory, except in a C library. A static
	// program may lack some.
	Functions []string
	// Texts are constants of its code, by which a file shows it that has no symbols of it.
	Texts []string
	// Limit is the limit of the findings of bursts in its heap.
	Limit growth.HeapLimit
	// Find finds its state in a process, whose library is the file. It is nil if objects cannot be
	// checked from outside.
	Find func(
		p *process.Process, maps []process.Mapping, library process.Mapping,
	) (heap.Allocator, error)
}

// All are the known mallocs: first the ones that replace the malloc of the C library. These give
// their names to their memory, if they name it to the kernel.
var All = []Allocator{
	{"jemalloc", false, of("libjemalloc"), of("dallocx"), of("<jemalloc>"), growth.HeapFreeUnmeasured, jemalloc.Find},
	{"mimalloc", false, of("libmimalloc"), of("mi_free"), of("mimalloc: "), growth.HeapFreedLooksAlive, mimalloc.Find},
	{"tcmalloc", false, of("libtcmalloc"), of("tc_free"), of("tcmalloc: "), growth.HeapUnchecked, nil},
	{"musl", true, of("ld-musl", "libc.musl"), nil, nil, growth.HeapUnchecked, nil},
	{"glibc", true, of("libc.so.", "libc-2."), ofGlibc, nil, growth.HeapUnlimited, glibc.Find},
}

var ofGlibc = of("gnu_get_libc_version", "_int_free")

func of(names ...string) []string { return names }

// OfFile returns the malloc whose file has such a name; nil: no known one.
func OfFile(path string) *Allocator {
	name := filepath.Base(path)
	for i := range All {
		isPrefix := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if slices.ContainsFunc(All[i].Files, isPrefix) {
			return &All[i]
		}
	}
	return nil
}

// OfFiles returns the name of the malloc of a process by the names of the files that it has mapped;
// empty: a static program, or one that is not known.
func OfFiles(maps []process.Mapping) string {
	found := make(map[string]bool)
	for _, m := range maps {
		if a := OfFile(m.Path); a != nil {
			found[a.Name] = true
		}
	}
	for _, a := range All {
		if found[a.Name] {
			return a.Name
		}
	}
	return ""
}
