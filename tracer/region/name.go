package region

import (
	"strings"
	"unicode"

	"github.com/allocscope/allocscope/tracer/process"
)

// part is the region of a part of a mapping, by what the maps tell.
func part(m process.Mapping, start, end uint64) Region {
	r := Region{Start: start, End: end, File: m.File(), Private: !m.Share}
	r.Class, r.Name = classOf(m)
	if m.IsFile() {
		r.Offset = m.Offset + (start - m.Start)
	}
	return r
}

// classOf gives the class and name of a mapping. Where it is not finer, it is that of addrspace.KindOf.
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
		return Device, path
	case m.IsFile():
		return File, path
	case strings.HasPrefix(path, "[") && !strings.HasPrefix(path, "[anon:"):
		return Kernel, path
	}
	return anonymousClass(m)
}

func isShmem(path string) bool {
	for _, prefix := range []string{"/dev/shm/", "/memfd:", "/SYSV", "/dev/zero", "[anon_shmem"} {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// What programs call their memory by prctl(PR_SET_VMA_ANON_NAME), by the beginnings of the names: jemalloc, mimalloc, tcmalloc,
// scudo, PartitionAlloc, Go's runtime, glibc (which starts its names with a space) and CPython.
var anonymousNames = []struct {
	prefix string
	class  Class
}{
	{"jemalloc", Allocator},
	{"mimalloc", Allocator},
	{"tcmalloc", Allocator},
	{"scudo", Allocator},
	{"partition_alloc", Allocator},
	{"libc_malloc", Allocator},
	{"Go: ", Allocator},
	{"glibc: malloc arena", Arena},
	{"glibc: malloc", Allocator},
	{"glibc: pthread", ThreadStack},
	{"cpython:pymalloc", Python},
}

func anonymousClass(m process.Mapping) (Class, string) {
	name := anonymousName(m.Path)
	if m.Execute {
		return JIT, nameOr(name, JIT)
	}
	for _, known := range anonymousNames {
		if !strings.HasPrefix(name, known.prefix) {
			continue
		}
		if known.class == ThreadStack { // the name has the thread's number
			return ThreadStack, string(ThreadStack)
		}
		return known.class, name
	}
	return Anonymous, nameOr(name, Anonymous)
}

// anonymousName gives the name that the program gave to anonymous memory; empty if it gave none.
func anonymousName(path string) string {
	name, ok := strings.CutPrefix(path, "[anon:")
	if !ok {
		return ""
	}
	return strings.TrimSpace(strings.TrimSuffix(name, "]"))
}

func nameOr(name string, class Class) string {
	if name == "" {
		return string(class)
	}
	return name
}

// isSearched reports whether what lies in a mapping can be told by its contents: private anonymous memory without a name, or
// with one that glibc or CPython gave to it.
func isSearched(m process.Mapping) bool {
	if m.IsFile() || m.Share {
		return false
	}
	name := anonymousName(m.Path)
	return m.Path == "" || strings.HasPrefix(name, "glibc: ") || strings.HasPrefix(name, "cpython:")
}

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

// Prefixes after which libraries put nothing but random letters: NCCL, multiprocessing.shared_memory, POSIX semaphores.
var beforeRandom = []string{"nccl-", "psm_", "wnsm_", "sem.mp-"}

// withoutRandom puts "*" for the rest of a name from its first word on that looks random: one that has a digit, or a capital
// letter after a small one. The letters before that in the very first word are kept.
func withoutRandom(name string) string {
	for _, prefix := range beforeRandom {
		if strings.HasPrefix(name, prefix) {
			return prefix + "*"
		}
	}
	for at, first := 0, true; at < len(name); first = false {
		length := strings.IndexAny(name[at:], "_-./ ")
		if length < 0 {
			length = len(name) - at
		}
		if odd := oddity(name[at : at+length]); odd >= 0 {
			if first {
				at += odd
			}
			return name[:at] + "*"
		}
		at += length + 1
	}
	return name
}

// oddity is where a word begins to look random; -1 where it does not.
func oddity(word string) int {
	var before rune
	for i, c := range word {
		if unicode.IsDigit(c) || unicode.IsUpper(c) && unicode.IsLower(before) {
			return i
		}
		before = c
	}
	return -1
}
