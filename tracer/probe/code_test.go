package probe

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/heap/allocators"
	"github.com/allocscope/allocscope/tracer/process"
)

func TestAllocatorCode(t *testing.T) {
	const libc, program, arrow = "/lib/libc.so.6", "/bin/program", "/lib/libarrow.so"
	const preloaded, tcmalloc = "/lib/libfast.so", "/lib/libtcmalloc.so.4"
	mapped := func(path string) process.Mapping { return process.Mapping{Path: path} }
	code := CodeOf([]FileSites{
		{Mapping: mapped(program)},
		{Mapping: mapped(arrow)},
		{Mapping: mapped(tcmalloc)},
		{Mapping: mapped(preloaded), isAllocator: true},
		{Mapping: mapped(libc), isLibc: true},
	}, nil)

	type frame struct{ function, path string }
	for _, c := range []struct {
		name   string
		frames []frame
		want   bool
	}{
		{"library without symbols", []frame{{"mmap64", libc}, {"libfast.so+0x94b5a", preloaded}}, true},
		{"system call in the library", []frame{{"libfast.so+0x94b5a", preloaded}}, true},
		{"library by its name", []frame{{"__mmap", libc}, {"libtcmalloc.so.4+0x1", tcmalloc}}, true},
		{"thread stack for it", []frame{{"mmap", libc}, {"pthread_create", libc}, {"x", preloaded}}, false},
		{"program through its mmap", []frame{{"mmap64", tcmalloc}, {"main", program}}, false},
		{"program below malloc", []frame{{"mmap", libc}, {"main", program}, {"x", preloaded}}, false},
		{"glibc's malloc", []frame{{"mmap", libc}, {"libc.so.6+0x9", libc}, {"main", program}}, false},
		{"lost stack", nil, false},

		{"jemalloc linked in", []frame{{"mmap", libc}, {"je_pages_map", program}}, true},
		{"by a static function", []frame{{"mmap", libc}, {"os_pages_map.constprop.0", program}}, true},
		{"of Arrow", []frame{{"mmap", libc}, {"je_arrow_private_je_pages_map", arrow}}, true},
		{"of a Rust crate", []frame{{"mmap", libc}, {"_rjem_je_pages_map", program}}, true},
		{"mimalloc linked in", []frame{{"mmap", libc}, {"mi_unix_mmap", arrow}}, true},
		{"tcmalloc linked in", []frame{{"mmap", program}, {"MmapSysAllocator::Alloc", program}}, true},
		{"another function", []frame{{"mmap", libc}, {"arrow::MemoryMappedFile::Open", arrow}}, false},
		{"of a file without an allocator", []frame{{"mmap", libc}, {"je_pages_map", "/lib/x"}}, false},
	} {
		s := &growth.Stack{}
		for _, f := range c.frames {
			module := &growth.Module{Path: f.path}
			s.Frames = append(s.Frames, growth.Frame{Function: f.function, Module: module})
		}
		if got := code.HasCalled(s); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Each allocator that replaces malloc has functions to probe.
func TestAllocators(t *testing.T) {
	for _, a := range allocators.All {
		isProbed := func(api allocatorAPI) bool { return api.release == a.Functions[0] }
		if !a.InLibc && !slices.ContainsFunc(allocatorAPIs, isProbed) {
			t.Errorf("no functions of %s", a.Name)
		}
	}
}
