package growth

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// AllocatorFunctions is an expression for the names, without parameters, of the functions by which an allocator is called
// and by which it calls the kernel, or the driver of a GPU. It has no anchors. Torch's allocator on GPUs
// calls itself by functions without a name.
const AllocatorFunctions = `(__GI_)?(__libc_|__)?(` +
	`malloc|calloc|realloc|reallocarray|posix_memalign|aligned_alloc|memalign|valloc|pvalloc|cfree|free|` +
	`mmap|mmap64|mremap|munmap|madvise|brk|sbrk)|` +
	`operator new(\[\])?|` +
	`cuMem(Alloc|AllocPitch|AllocManaged|AllocAsync|AllocFromPoolAsync|AllocHost|HostAlloc|HostRegister|Create)(_v2)?(_ptsz)?|` +
	`cuda(Malloc(Pitch|3D|Array|Managed|Host|Async|FromPoolAsync)?|HostAlloc|HostRegister)(_ptsz)?|` +
	`libc10_cuda[-.0-9a-f]*\.so\+0x[0-9a-f]+|` +
	`c10::cuda::CUDACachingAllocator::.*|c10::reportMemoryUsageToProfiler`

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

// libraryName is the package of Python that a library is installed with, or its own name.
func libraryName(file string) string {
	if file == "" {
		return ""
	}
	if found := installedFile.FindStringSubmatch(file); found != nil {
		if top, _, inside := strings.Cut(found[1], "/"); inside && top != "" && !strings.HasSuffix(top, ".libs") {
			return top
		}
	}
	return path.Base(file)
}

var (
	installedFile = regexp.MustCompile(`.*/(?:site|dist)-packages/(.+)`)
	standardFile  = regexp.MustCompile(`.*/lib(?:64)?/python[0-9][^/]*/(.+)`)
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
	for _, root := range []*regexp.Regexp{installedFile, standardFile} {
		if found := root.FindStringSubmatch(file); found != nil {
			top, _, _ := strings.Cut(found[1], "/")
			return strings.TrimSuffix(top, ".py")
		}
	}
	return scriptOf(file)
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
