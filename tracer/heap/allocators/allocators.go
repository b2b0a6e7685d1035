// Package allocators lists the mallocs that are known. A new one is a package beside this one, and a
// line here; the functions that its probes need are in tracer/probe.
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
	// Files are prefixes of the names of its files.
	Files []string
	// Functions are those that it has and others lack, the ones that a library exports first. A
	// static program may have the others only.
	Functions []string
	// Limit is what bursts cannot find in its heap.
	Limit growth.HeapLimit
	// Find finds its state in a process, whose library is the file. It is nil if objects cannot be
	// checked from outside.
	Find func(
		p *process.Process, maps []process.Mapping, library process.Mapping,
	) (heap.Allocator, error)
}

// All are the known mallocs: first the ones that replace the malloc of the C library.
var All = []Allocator{
	{"jemalloc", files("libjemalloc"), functions("dallocx"), growth.HeapFreeUnmeasured, jemalloc.Find},
	{"mimalloc", files("libmimalloc"), functions("mi_free"), growth.HeapFreedLooksAlive, mimalloc.Find},
	{"tcmalloc", files("libtcmalloc"), functions("tc_free"), growth.HeapUnchecked, nil},
	{"musl", files("ld-musl", "libc.musl"), nil, growth.HeapUnchecked, nil},
	{
		"glibc", files("libc.so.", "libc-2."), functions("gnu_get_libc_version", "_int_free"),
		growth.HeapUnlimited, glibc.Find,
	},
}

func files(prefixes ...string) []string  { return prefixes }
func functions(names ...string) []string { return names }

// OfFile returns the malloc whose file has such a name; nil: none of those that are known.
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
