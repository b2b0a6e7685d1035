package addrspace

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// line is a line of /proc/PID/maps from one page to another. A path with a slash means a file.
func line(from, to uint64, path string) process.Mapping {
	m := process.Mapping{Start: at(from), End: at(to), Path: path}
	if path != "" && path[0] == '/' {
		m.Inode = 17
	}
	return m
}

func mustReconcile(t *testing.T, s *IntervalSet, missedPages uint64, maps ...process.Mapping) {
	t.Helper()
	want := Corrections{Missed: int64(missedPages * page)}
	if got := s.Reconcile(maps, Changes{}); got != want {
		t.Errorf("corrections %+v, want %+v", got, want)
	}
}

func TestNew(t *testing.T) {
	s := New([]process.Mapping{
		line(0, 2, "/usr/lib/libc.so.6"), line(4, 5, ""), line(7, 9, "[stack]"),
	}, 0)
	libc := mapped(0, 2, 0).of(growth.KindFile).from(BeforeTracing)
	mustHold(t, s, libc, mapped(4, 5, 0).from(BeforeTracing))
	s.Mmap(by(1), at(4), page, private|unix.MAP_FIXED, noFile)
	mustHold(t, s, libc, mapped(4, 5, 1))

	var kernel []process.Mapping
	for i, path := range []string{
		"[stack]", "[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]", "[uprobes]",
	} {
		kernel = append(kernel, line(uint64(i), uint64(i+1), path))
	}
	s = New(kernel, 0)
	mustReconcile(t, s, 0, kernel...)
	mustHold(t, s)
}

func TestKindOf(t *testing.T) {
	for path, want := range map[string]growth.Kind{
		"":                              growth.KindMmap,
		"[heap]":                        growth.KindHeap,
		"[stack]":                       growth.KindStack,
		"[vdso]":                        growth.KindMmap,
		"[anon: glibc: malloc]":         growth.KindMmap,
		"[anon_shmem:buffer]":           growth.KindShmem,
		"/usr/lib/libc.so.6":            growth.KindFile,
		"/tmp/gone (deleted)":           growth.KindFile,
		"/dev/shm/torch_1_2 (deleted)":  growth.KindShmem,
		"/memfd:wayland (deleted)":      growth.KindShmem,
		"/SYSV00000000 (deleted)":       growth.KindShmem,
		"/dev/zero (deleted)":           growth.KindShmem,
		"/dev/nvidia0":                  growth.KindDeviceFile,
		"/home/user/dev/shm/not shared": growth.KindFile,
	} {
		if got := KindOf(line(0, 1, path)); got != want {
			t.Errorf("%q: kind %s, want %s", path, got, want)
		}
	}

	for path, want := range map[string]growth.Kind{
		"/home/user/batches.bin": growth.KindShmem,
		"/dev/nvidia0":           growth.KindDeviceFile, // a container's /dev is a tmpfs
	} {
		m := line(0, 1, path)
		m.Shared, m.Tmpfs = true, true
		if got := KindOf(m); got != want {
			t.Errorf("%q on a tmpfs: kind %s, want %s", path, got, want)
		}
	}
}

// How intervals are cut and joined: the model of TestCalls compares pages only.
func TestReconcileBoundaries(t *testing.T) {
	// The kernel merges adjacent mappings; the set remembers that two calls made them.
	t.Run("merged by the kernel", func(t *testing.T) {
		s := fourPages()
		s.Mmap(by(1), at(4), page, private, noFile)
		s.Mmap(by(2), at(5), page, private, noFile)
		mustReconcile(t, s, 0, line(0, 6, ""))
		mustHold(t, s, mapped(0, 4, 1), mapped(4, 5, 1), mapped(5, 6, 2))
	})

	// mprotect(2) makes two lines of one mapping, as for the guard page of a thread's stack.
	t.Run("split by the kernel", func(t *testing.T) {
		s := fourPages()
		s.Mmap(by(1), at(4), 2*page, private, noFile)
		mustReconcile(t, s, 0, line(0, 1, ""), line(1, 3, ""), line(3, 5, ""), line(5, 6, ""))
		mustHold(t, s, mapped(0, 4, 1), mapped(4, 6, 1))
	})

	// Memory that grows bit by bit without an observed call is one interval.
	t.Run("unobserved growth", func(t *testing.T) {
		s := &IntervalSet{}
		for n := uint64(1); n <= 100; n++ {
			mustReconcile(t, s, 1, line(0, n, ""))
		}
		mustHold(t, s, mapped(0, 100, 0).from(Unobserved))
	})
}

func TestReconcileKinds(t *testing.T) {
	t.Run("files get the kind of their path", func(t *testing.T) {
		s := &IntervalSet{}
		s.Mmap(by(1), at(0), 4*page, unix.MAP_SHARED, 3)
		s.Mmap(by(1), at(4), 2*page, unix.MAP_SHARED, 3)
		s.Mmap(by(1), at(8), page, unix.MAP_SHARED, 4)
		s.Mmap(by(2), at(10), page, unix.MAP_SHARED, 3)
		maps := []process.Mapping{
			line(0, 6, "/dev/shm/a"), line(8, 9, "/data/b"), line(10, 11, "/dev/nvidia0"),
		}
		for range 3 {
			mustReconcile(t, s, 0, maps...)
			mustHold(t, s,
				mapped(0, 4, 1).of(growth.KindShmem), mapped(4, 6, 1).of(growth.KindShmem),
				mapped(8, 9, 1).of(growth.KindFile), mapped(10, 11, 2).of(growth.KindDeviceFile))
			mustHaveMapped(t, s, 1, growth.KindShmem, total(2, 6))
			mustHaveMapped(t, s, 1, growth.KindFile, total(1, 1))
			mustHaveMapped(t, s, 2, growth.KindDeviceFile, total(1, 1))
			if len(s.Mapped()) != 3 {
				t.Errorf("mapped %+v", s.Mapped())
			}
		}
	})

	t.Run("what was unmapped before stays a file", func(t *testing.T) {
		s := &IntervalSet{}
		s.Mmap(by(1), at(0), 5*page, unix.MAP_SHARED, 3)
		s.Munmap(at(2), page)
		mustReconcile(t, s, 0, line(0, 2, "/dev/shm/a"), line(3, 5, "/dev/shm/a"))
		mustHaveMapped(t, s, 1, growth.KindShmem, total(1, 2))
		mustHaveMapped(t, s, 1, growth.KindFile, total(0, 3))
	})

	t.Run("no more is recounted than was counted", func(t *testing.T) {
		s := &IntervalSet{}
		s.Mmap(by(1), at(0), 5*page, unix.MAP_SHARED, 3)
		s.Mmap(by(1), at(30), page, unix.MAP_SHARED, 3)
		s.Mremap(by(2), at(0), 5*page, at(20), 5*page, unix.MREMAP_MAYMOVE|unix.MREMAP_DONTUNMAP)
		mustReconcile(t, s, 0,
			line(0, 5, "/dev/shm/a"), line(20, 25, "/dev/shm/a"), line(30, 31, "/dev/shm/a"))
		mustHaveMapped(t, s, 1, growth.KindShmem, total(2, 6))
		mustHaveMapped(t, s, 1, growth.KindFile, Total{})
	})
}

// brk(2) is not traced: the maps that are read together with the calls show the break.
func TestApplyBreak(t *testing.T) {
	apply := func(s *IntervalSet, maps ...process.Mapping) {
		s.Apply(nil, maps, nil)
		mustReconcile(t, s, 0, maps...)
	}

	t.Run("up and down", func(t *testing.T) {
		before := heap(0, 4).from(BeforeTracing)
		before.ByAllocator = false
		s := New([]process.Mapping{line(0, 4, "[heap]")}, at(0))
		apply(s, line(0, 6, "[heap]"))
		mustHold(t, s, before, heap(4, 6))
		apply(s, line(0, 3, "[heap]"))
		before.End = at(3)
		mustHold(t, s, before)
		mustHaveReleased(t, s, "brk", total(1, 3))
		if len(s.Mapped()) != 0 {
			t.Errorf("a stack has mapped the heap: %+v", s.Mapped())
		}
	})

	// A program that has not moved its break has no [heap].
	t.Run("from its start and back", func(t *testing.T) {
		other := line(10, 12, "")
		s := New([]process.Mapping{other}, at(0))
		apply(s, line(0, 3, "[heap]"), other)
		mustHold(t, s, heap(0, 3), mapped(10, 12, 0).from(BeforeTracing))
		apply(s, other)
		mustHold(t, s, mapped(10, 12, 0).from(BeforeTracing))
		mustHaveReleased(t, s, "brk", total(1, 3))
	})

	t.Run("maps that could not be read", func(t *testing.T) {
		s := New([]process.Mapping{line(0, 4, "[heap]")}, at(0))
		s.Apply(nil, nil, nil)
		mustHaveReleased(t, s, "brk", Total{})
	})
}
