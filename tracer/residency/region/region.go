// Package region tells what kind of memory each stretch of an address space is: by the kernel's maps, and by the marks that
// allocators and the thread library leave in their memory. It reads memory only through an interface, and trusts nothing
// that it reads there.
package region

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/process"
)

// A Class is a kind of memory.
type Class string

// The classes of memory. What is found by its contents needs its first page in memory; where that is swapped out, or where
// nothing tells what lies there, memory is Anonymous.
const (
	Anonymous   Class = "anonymous"      // private, of unknown use
	MainHeap    Class = "main heap"      // malloc's, grown by brk
	Arena       Class = "arena"          // heap of up to 64 MiB of an arena that glibc's malloc made for threads
	Chunk       Class = "mmapped chunk"  // one large malloc, served by a mapping of its own
	Python      Class = "python arena"   // of pymalloc, CPython's allocator of small objects
	ThreadStack Class = "thread stack"   // with its guard, thread control block and static TLS; of an ended thread, too, if kept
	MainStack   Class = "main stack"     // of the first thread
	JIT         Class = "generated code" // private anonymous memory that can be executed
	File        Class = "file"           // mapped from a file
	Shmem       Class = "shared memory"  // memfd, System V, /dev/shm, shared anonymous memory
	Device      Class = "device"         // mapped from a device
	Kernel      Class = "kernel"         // what the kernel maps by itself: vdso, vvar, vsyscall, uprobes
	Hugetlb     Class = "huge pages"     // of hugetlbfs, which RSS does not count
	Allocator   Class = "allocator"      // of an allocator that names its memory to the kernel
)

// A Region is a stretch of addresses that holds one thing.
type Region struct {
	// Start and End bound the addresses, End excluded.
	Start, End uint64
	Class      Class
	// Name under which regions of one class belong together: the path of a file or device, "[stack]", "arena 0x7f12a4000030"
	// for all heaps of an arena, shared memory without the random parts of its name, a name that the program gave to
	// anonymous memory; else that of the class.
	Name string
	// File, and Offset of Start in it in bytes; zero for memory without one.
	File   process.FileID
	Offset uint64
	// Private: what is written here is seen by no other process.
	Private bool
}

// Memory reads the memory of a process.
type Memory interface {
	// Resident reports whether the page of an address is in memory.
	Resident(address uint64) bool
	// Peek reads size bytes at each address, none across the end of a page; nil for what cannot be read. It is asked only
	// for what is resident: reading anything else would make the process fault it in.
	Peek(addresses []uint64, size int) [][]byte
}

// Classify gives the class of all that is mapped: regions sorted by address, disjoint, covering exactly the maps, which are
// as the kernel lists them. starts are addresses at which mappings are known to have begun: the kernel joins neighbours, so
// that the maps alone do not tell. Arenas, chunks, stacks and arenas of Python are one region each, even where they stretch
// over several mappings; a mapping is never joined to another for any other reason.
//
// Less is found where swapped out pages hide a header, and above memory of unknown use that the kernel has joined to what lies
// above it, unless starts tell. There, arenas of Python are looked for all the same, but where they begin may then be unknown
// by less than 16 KiB. What the process changes meanwhile may have the class of its mapping alone.
//
// At most some hundred thousand headers are read, whatever the process. starts are left as they are.
//
// Heaps and chunks are those of glibc on 64-bit machines, from 2.26 on; the newest looked at is 2.43. Thread stacks are recognised on x86-64 alone: on
// other machines glibc keeps no pointer by which to know a thread's control block; there, stacks that glibc has named to the
// kernel (2.39, glibc.mem.decorate_maps) are the only ones.
func Classify(maps []process.Mapping, starts []uint64, memory Memory) []Region {
	f := newFinder(maps, memory)
	starts = f.begins(maps, starts)
	f.take(f.heaps())
	f.take(f.stacks(maps, starts))
	f.take(f.walk(append(starts, ends(f.found)...)))
	stray := f.strayArenas()
	f.take(stray)
	f.take(f.walk(ends(stray)))
	return f.regions(maps)
}

// take adds regions to those that are known. Where some overlap, those known before win, and of equals the lowest.
func (f *finder) take(found []Region) {
	if len(found) == 0 {
		return
	}
	slices.SortFunc(found, func(a, b Region) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End)) })
	var last uint64
	for _, r := range found {
		if room, ok := holding(f.free, r.Start); ok && r.Start >= last && r.Start < r.End && r.End <= room.end {
			last = r.End
			f.found = append(f.found, r)
		}
	}
	slices.SortFunc(f.found, func(a, b Region) int { return cmp.Compare(a.Start, b.Start) })
	f.free = less(f.areas, f.found)
	f.open = less(f.writable, f.found)
}

func ends(regions []Region) []uint64 {
	all := make([]uint64, len(regions))
	for i, r := range regions {
		all[i] = r.End
	}
	return all
}

// regions lays what was found over the maps.
func (f *finder) regions(maps []process.Mapping) []Region {
	regions := make([]Region, 0, len(maps)+2*len(f.found))
	next := 0
	for _, m := range maps {
		for at := m.Start; at < m.End; {
			for next < len(f.found) && f.found[next].End <= at {
				next++
			}
			if next < len(f.found) && f.found[next].Start <= at {
				if at == f.found[next].Start {
					regions = append(regions, f.found[next])
				}
				at = f.found[next].End
				continue
			}
			end := m.End
			if next < len(f.found) {
				end = min(end, f.found[next].Start)
			}
			regions = append(regions, part(m, at, end))
			at = end
		}
	}
	return regions
}
