// Package region classifies the address space of a process: by the kernel's maps, and by the
// marks that glibc's malloc, its thread library and CPython's pymalloc leave in their memory. It
// reads memory only through an interface, and treats all that it reads there as hostile.
package region

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/heap/pymalloc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Class is a kind of memory.
type Class string

// The classes of memory. Those that only the contents show need the first page of a region in
// memory: where that page is swapped out, or holds no known mark, the region is Anonymous.
const (
	Anonymous    Class = "anonymous"      // private, of unknown use
	MainHeap     Class = "main heap"      // of the main arena of malloc, grown by brk
	Arena        Class = "arena"          // heap of up to 64 MiB of another arena of glibc's malloc
	MmappedChunk Class = "mmapped chunk"  // a large allocation that malloc served by mmap
	PythonArena  Class = "python arena"   // of pymalloc, CPython's allocator of small objects
	ThreadStack  Class = "thread stack"   // with guard, TCB and static TLS; cached ones, too
	MainStack    Class = "main stack"     // of the first thread
	JIT          Class = "generated code" // executable private anonymous memory
	File         Class = "file"           // mapped from a file
	Shmem        Class = "shared memory"  // memfd, System V, /dev/shm, shared anonymous memory
	DeviceFile   Class = "device"         // mapped from a device file
	Kernel       Class = "kernel"         // mapped by the kernel: vdso, vvar, vsyscall, uprobes
	Hugetlb      Class = "huge pages"     // of hugetlbfs, which RSS does not count
	Allocator    Class = "allocator"      // of an allocator that names its memory to the kernel
)

// Region is a range of addresses with one use.
type Region struct {
	// Start and End bound the addresses, End excluded.
	Start, End uint64
	Class      Class
	// Name groups the regions of one class: the path of a file or device, "[stack]",
	// "arena 0x7f12a4000030" for all heaps of an arena, shared memory without the random parts
	// of its name, the name that the program gave to anonymous memory. Otherwise it is the
	// class.
	Name string
	// File, and the offset of Start in it in bytes. Both are zero for memory without a file.
	File   process.FileID
	Offset uint64
	// Private is set if no other process sees what is written here.
	Private bool
}

// Classify returns the regions of a process: sorted by address, disjoint, and covering exactly
// the maps, which are in the kernel's order. Heaps, mmapped chunks, thread stacks and pymalloc
// arenas are one region each, even where they span several mappings. Regions are never joined
// otherwise.
//
// starts are addresses at which mappings were seen to begin. The kernel merges adjacent mappings,
// so that the maps alone do not show all. starts are not changed.
//
// Three things hide regions:
//   - Swapped-out pages may hold the header.
//   - A region above memory of unknown use is found only if starts has its address, where the
//     kernel has merged the two. Pymalloc arenas are found there all the same, but their bounds may
//     then be off by less than 16 KiB.
//   - Memory that the process changes during the call may have only the class of its mapping.
//
// memory returns nil for pages that are not resident: reading them would make the process fault
// them in. Classify asks for nothing across the end of a page, and reads at most some hundred
// thousand headers of any process.
//
// Package glibc finds heaps, mmapped chunks and thread stacks. Where it finds no stacks, their names
// show them, if glibc gives them names (2.39, glibc.mem.decorate_maps).
func Classify(maps []process.Mapping, starts []uint64, memory mem.Reader) []Region {
	f := newFinder(maps, memory)
	starts = f.possibleStarts(maps, starts)

	f.claim(f.arenaHeaps())
	f.claim(f.threadStacks(maps, starts))
	f.claim(f.walk(append(starts, ends(f.found)...)))

	var scanned []Region
	for _, a := range f.pymalloc().Scan() {
		scanned = append(scanned, anonymousRegion(PythonArena, a.Start, a.End))
	}
	f.claim(scanned)
	f.claim(f.walk(ends(scanned)))

	return f.layOver(maps)
}

// maxPeeks bounds how many headers one call reads.
const maxPeeks = 1 << 18

// finder finds regions in the private anonymous memory of a process.
type finder struct {
	heap.Anonymous
	memory    mem.Reader
	peeksLeft int
	// freeAreas and freeWritable are the parts of Areas and Writable that no region has claimed.
	freeAreas, freeWritable mem.Spans
	// found are the regions so far: sorted, disjoint, each within one area.
	found []Region
}

func newFinder(maps []process.Mapping, memory mem.Reader) *finder {
	f := &finder{Anonymous: heap.AnonymousOf(maps), memory: memory, peeksLeft: maxPeeks}
	f.freeAreas, f.freeWritable = f.Areas, f.Writable
	return f
}

// arenaHeaps finds the heaps of glibc's arenas other than the main one.
func (f *finder) arenaHeaps() (found []Region) {
	for _, h := range glibc.FindHeaps(f.Anonymous, f.freeWritable, f.peek) {
		r := anonymousRegion(Arena, h.Start, h.End)
		r.Name = fmt.Sprintf("arena %#x", h.Arena)
		found = append(found, r)
	}
	return found
}

// threadStacks finds the stacks of threads that glibc made.
func (f *finder) threadStacks(maps []process.Mapping, starts []uint64) (found []Region) {
	for _, s := range glibc.FindStacks(f.Anonymous, f.freeWritable, maps, starts, f.peek) {
		found = append(found, anonymousRegion(ThreadStack, s.Start, s.End))
	}
	return found
}

// pymalloc returns the memory in which arenas of pymalloc are searched.
func (f *finder) pymalloc() pymalloc.Memory {
	return pymalloc.Memory{Free: f.freeWritable, Peek: f.peek}
}

// possibleStarts returns the addresses in writable areas at which a mapping begins or has begun.
func (f *finder) possibleStarts(maps []process.Mapping, starts []uint64) []uint64 {
	var possible []uint64
	add := func(address uint64) {
		if _, ok := f.Writable.Find(address); ok && address%process.PageSize == 0 {
			possible = append(possible, address)
		}
	}

	for _, m := range maps {
		add(m.Start)
	}
	for _, s := range starts {
		add(s)
	}

	slices.Sort(possible)
	return slices.Compact(possible)
}

// claim adds regions to those found. Of overlapping ones the earlier claimed wins, and within one
// call the lowest.
func (f *finder) claim(regions []Region) {
	if len(regions) == 0 {
		return
	}

	slices.SortFunc(regions, func(a, b Region) int {
		return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(b.End, a.End))
	})
	var lastEnd uint64
	for _, r := range regions {
		area, ok := f.freeAreas.Find(r.Start)
		if ok && r.Start >= lastEnd && r.Start < r.End && r.End <= area.End {
			lastEnd = r.End
			f.found = append(f.found, r)
		}
	}
	slices.SortFunc(f.found, func(a, b Region) int { return cmp.Compare(a.Start, b.Start) })

	claimed := make(mem.Spans, len(f.found))
	for i, r := range f.found {
		claimed[i] = mem.Span{Start: r.Start, End: r.End}
	}
	f.freeAreas = f.Areas.Subtract(claimed)
	f.freeWritable = f.Writable.Subtract(claimed)
}

func ends(regions []Region) []uint64 {
	addresses := make([]uint64, len(regions))
	for i, r := range regions {
		addresses[i] = r.End
	}
	return addresses
}

// layOver returns the maps as regions, with the regions found in the place of the parts that they
// cover.
func (f *finder) layOver(maps []process.Mapping) []Region {
	regions := make([]Region, 0, len(maps)+2*len(f.found))
	next := 0

	for _, m := range maps {
		for address := m.Start; address < m.End; {
			for next < len(f.found) && f.found[next].End <= address {
				next++
			}

			if next < len(f.found) && f.found[next].Start <= address {
				if address == f.found[next].Start {
					regions = append(regions, f.found[next])
				}
				address = f.found[next].End
				continue
			}

			end := m.End
			if next < len(f.found) {
				end = min(end, f.found[next].Start)
			}
			regions = append(regions, regionOf(m, address, end))
			address = end
		}
	}
	return regions
}

// peek reads size bytes at each address, all within one page. It returns nil for memory that cannot
// be read, and once the call has read maxPeeks headers.
func (f *finder) peek(addresses []uint64, size int) [][]byte {
	contents := make([][]byte, len(addresses))
	addresses = addresses[:min(len(addresses), f.peeksLeft)]
	if len(addresses) == 0 {
		return contents
	}

	read, err := f.memory.Peek(addresses, size)
	if err != nil {
		return contents
	}
	for i, content := range read {
		if content != nil {
			f.peeksLeft--
			contents[i] = content
		}
	}
	return contents
}
