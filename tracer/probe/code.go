package probe

import (
	"slices"
	"strings"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/heap/allocators"
)

// AllocatorCode shows the code of a process's allocators from the program's own, by the frames of a
// stack. The zero value knows none.
type AllocatorCode struct {
	libraries map[string]bool // paths of files without other code
	linkedIn  map[string]bool // paths of files with other code, too
	wrappers  map[string]bool // paths of libraries that may call another allocator
}

// CodeOf returns the code of the allocators that have these functions. Producers that define malloc
// may wrap the malloc of another file.
func CodeOf(files []FileSites, producers []Producer) AllocatorCode {
	code := AllocatorCode{libraries: make(map[string]bool), linkedIn: make(map[string]bool)}
	for _, f := range files {
		switch {
		case f.isLibc: // the kernel side and the contents of memory tell its malloc from the rest
		case f.isAllocator || allocators.OfFile(f.Mapping.Path) != nil:
			code.libraries[f.Mapping.Path] = true
		default:
			code.linkedIn[f.Mapping.Path] = true
		}
	}

	code.wrappers = make(map[string]bool)
	for _, p := range producers {
		code.wrappers[p.Mapping.Path] = code.libraries[p.Mapping.Path]
	}

	return code
}

// HasCalled reports whether code of an allocator made the system call at the top of a stack.
func (c AllocatorCode) HasCalled(s *growth.Stack) bool {
	isOfWrapper := func(f growth.Frame) bool { return f.Module != nil && c.wrappers[f.Module.Path] }
	if len(c.wrappers) > 0 && slices.ContainsFunc(s.Frames, isOfWrapper) {
		return true
	}
	for _, frame := range s.Frames {
		if slices.Contains(systemCalls, frame.Function) {
			continue
		}
		if frame.Module == nil {
			return false
		}
		path := frame.Module.Path
		return c.libraries[path] || c.linkedIn[path] && isInternal(frame.Function)
	}

	return false
}

// systemCalls are the functions of the C library that make the calls of source mapping. tcmalloc
// replaces them, so that all calls of the program lead through its file.
var systemCalls = []string{
	"mmap", "mmap64", "munmap", "mremap", "madvise", "brk", "sbrk", "syscall",
	"__mmap", "__mmap64", "__munmap", "__mremap", "__madvise", "__brk", "__sbrk",
}

// isInternal reports whether a function that maps memory is an allocator's, by its demangled name
// in a symbol table:
//   - jemalloc: src/pages.c; functions have a prefix (JEMALLOC_PRIVATE_NAMESPACE), static ones none
//   - mimalloc: src/os.c and src/prim/
//   - tcmalloc: src/system-alloc.cc
func isInternal(function string) bool {
	switch {
	case hasPrefix(function, "os_pages_"), strings.Contains(function, "je_pages_"),
		hasPrefix(function, "_mi_", "mi_", "unix_mmap"),
		hasPrefix(function, "tcmalloc::", "TCMalloc_System"):
		return true
	}
	class, _, isMethod := strings.Cut(function, "::")
	return isMethod && strings.HasSuffix(class, "SysAllocator")
}

func hasPrefix(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
