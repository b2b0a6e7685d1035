package region

import (
	"strings"
	"unicode"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/allocators"
	"github.com/allocscope/allocscope/tracer/process"
)

// anonymousRegion returns a region of private anonymous memory with the name of its class.
func anonymousRegion(class Class, start, end uint64) Region {
	return Region{Start: start, End: end, Class: class, Name: string(class), Private: true}
}

// regionOf returns the region of a part of a mapping, by the maps alone.
func regionOf(m process.Mapping, start, end uint64) Region {
	r := Region{Start: start, End: end, File: m.File(), Private: !m.Shared}
	r.Class, r.Name = classOf(m)
	if m.IsFile() {
		r.Offset = m.Offset + (start - m.Start)
	}
	return r
}

// classOf returns the class and name of a mapping. Where a class is no finer than a kind, it
// agrees with addrspace.KindOf.
func classOf(m process.Mapping) (Class, string) {
	switch path := m.Path; {
	case path == "[heap]":
		return MainHeap, string(MainHeap)
	case path == "[stack]":
		return MainStack, path
	case strings.HasPrefix(path, "/anon_hugepage"), strings.HasPrefix(path, "/dev/hugepages/"):
		return Hugetlb, string(Hugetlb)
	case isShmem(path):
		return Shmem, shmemName(path)
	case strings.HasPrefix(path, "/dev/"):
		return DeviceFile, path
	case m.Tmpfs:
		return Shmem, tmpfsName(path)
	case m.IsFile():
		return File, path
	case strings.HasPrefix(path, "[") && !strings.HasPrefix(path, "[anon:"):
		return Kernel, path
	}
	return anonymousClass(m)
}

// anonymousNames are prefixes of the names that allocators, thread libraries and interpreters give
// to their memory, beside the names in allocators.All. See heap.NameOf.
var anonymousNames = []struct {
	prefix string
	class  Class
}{
	{"scudo", Allocator},
	{"partition_alloc", Allocator},
	{"libc_malloc", Allocator},
	{"Go: ", Allocator},
	{"glibc: malloc arena", Arena},
	{"glibc: malloc", Allocator},
	{"glibc: pthread", ThreadStack},
	{"cpython:pymalloc", PythonArena},
}

// anonymousClass is classOf for anonymous memory.
func anonymousClass(m process.Mapping) (Class, string) {
	name := heap.NameOf(m)
	if m.Execute {
		return JIT, nameOr(name, JIT)
	}

	for _, known := range anonymousNames {
		switch {
		case !strings.HasPrefix(name, known.prefix):
		case known.class == ThreadStack: // the name has the number of the thread
			return ThreadStack, string(ThreadStack)
		default:
			return known.class, name
		}
	}
	for _, a := range allocators.All {
		if !a.InLibc && strings.HasPrefix(name, a.Name) {
			return Allocator, name
		}
	}
	return Anonymous, nameOr(name, Anonymous)
}

func nameOr(name string, class Class) string {
	if name == "" {
		return string(class)
	}
	return name
}

func isShmem(path string) bool {
	prefixes := []string{"/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "[anon_shmem"}
	for _, prefix := range prefixes {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// shmemName returns the name of shared memory, with "*" for its random parts.
func shmemName(path string) string {
	path = strings.TrimSuffix(path, " (deleted)")
	switch {
	case strings.HasPrefix(path, "/SYSV"):
		return "System V shared memory"
	case strings.HasPrefix(path, "/dev/zero"):
		return "shared anonymous memory"
	case strings.HasPrefix(path, "/memfd:"):
		return "memfd:" + withoutRandom(strings.TrimPrefix(path, "/memfd:"))
	case strings.HasPrefix(path, "/dev/shm/"):
		return "/dev/shm/" + withoutRandom(strings.TrimPrefix(path, "/dev/shm/"))
	}
	return strings.TrimSuffix(strings.TrimPrefix(path, "[anon_shmem:"), "]")
}

// tmpfsName returns the name of a file on a tmpfs. A chroot's may be a folder's name.
func tmpfsName(path string) string {
	if _, name, ok := strings.Cut(path, "/dev/shm/"); ok {
		return shmemName("/dev/shm/" + name)
	}
	return strings.TrimSuffix(path, " (deleted)")
}

// randomNamePrefixes are prefixes after which libraries put random letters alone: NCCL,
// multiprocessing.shared_memory, POSIX semaphores.
var randomNamePrefixes = []string{"nccl-", "psm_", "wnsm_", "sem.mp-"}

// withoutRandom replaces a name from its first random-looking word on by "*". In the first word of
// the name it keeps the letters before those that look random.
func withoutRandom(name string) string {
	for _, prefix := range randomNamePrefixes {
		if strings.HasPrefix(name, prefix) {
			return prefix + "*"
		}
	}

	for start := 0; start < len(name); {
		length := strings.IndexAny(name[start:], "_-./ ")
		if length < 0 {
			length = len(name) - start
		}

		if random := randomIndex(name[start : start+length]); random >= 0 {
			if start > 0 {
				random = 0
			}
			return name[:start+random] + "*"
		}
		start += length + 1
	}
	return name
}

// randomIndex returns where a word begins to look random: at a digit, or at a capital letter
// after a small one. It returns -1 if no part does.
func randomIndex(word string) int {
	var previous rune
	for i, c := range word {
		if unicode.IsDigit(c) || unicode.IsUpper(c) && unicode.IsLower(previous) {
			return i
		}
		previous = c
	}
	return -1
}
