package growth

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// AllocatorFunctions is an expression for the names, without parameters, of the functions by which an allocator is called
// and by which it calls the kernel. It has no anchors.
const AllocatorFunctions = `(__GI_)?(__libc_|__)?(` +
	`malloc|calloc|realloc|reallocarray|posix_memalign|aligned_alloc|memalign|valloc|pvalloc|cfree|free|` +
	`mmap|mmap64|mremap|munmap|madvise|brk|sbrk)|` +
	`operator new(\[\])?`

var allocatorFunction = regexp.MustCompile(`^(` + AllocatorFunctions + `)$`)

// WithoutAllocator is frames, leaf first, from the caller of the allocator on; all of them where there is no caller.
func WithoutAllocator(frames []Frame) []Frame {
	called := false
	for i, f := range slices.Backward(frames) {
		name, _, _ := strings.Cut(f.Function, "(")
		switch {
		case f.Python || !allocatorFunction.MatchString(name):
			called = true
		case called:
			return frames[i+1:]
		}
	}
	return frames
}

// unknownOwner owns stacks that name neither a Python file nor a module.
const unknownOwner = "[unknown]"

// Owner is what a stack's memory belongs to: the Python module nearest to the leaf, such as "json", "train.py" for a script,
// or "torch._inductor", the one package that is split; without Python, the file name of the first module (library) that is
// not the allocator; "[unknown]" where there is none either.
func Owner(s *Stack) string {
	for _, f := range s.Frames {
		if f.Python {
			if module := pythonModule(f.File); module != "" {
				return module
			}
		}
	}
	for _, f := range WithoutAllocator(s.Frames) {
		if f.Module != nil && f.Module.Path != "" {
			return path.Base(f.Module.Path)
		}
	}
	return unknownOwner
}

var (
	installedFile = regexp.MustCompile(`.*/(?:site|dist)-packages/(.+)`)
	standardFile  = regexp.MustCompile(`.*/lib(?:64)?/python[0-9][^/]*/(.+)`)
	// Inductor writes the code of each graph into a file with a name of its own.
	inductorFile = regexp.MustCompile(`/torchinductor_[^/]*/`)
)

// pythonModule is the module of a source file; empty for code without a file ("<string>"), which belongs to its caller.
func pythonModule(file string) string {
	if frozen, ok := strings.CutPrefix(file, "<frozen "); ok {
		top, _, _ := strings.Cut(strings.TrimSuffix(frozen, ">"), ".")
		return top
	}
	if strings.HasPrefix(file, "<") {
		return ""
	}
	if inductorFile.MatchString(file) {
		return "torch._inductor"
	}
	for _, root := range []*regexp.Regexp{installedFile, standardFile} {
		if found := root.FindStringSubmatch(file); found != nil {
			return packageOf(strings.Split(found[1], "/"))
		}
	}
	return scriptOf(file)
}

// packageOf is the top package of a path below a folder of packages; of torch, with the package below it.
func packageOf(parts []string) string {
	if len(parts) > 2 && parts[0] == "torch" {
		return parts[0] + "." + parts[1]
	}
	return strings.TrimSuffix(parts[0], ".py")
}

// scriptOf is the name of a file; of a package's own file, which all packages have, that of the package.
func scriptOf(file string) string {
	if file == "" {
		return ""
	}
	base, folder := path.Base(file), path.Base(path.Dir(file))
	if (base == "__init__.py" || base == "__main__.py") && folder != "." && folder != "/" {
		return folder
	}
	return base
}
