// Package region classifies the address space of a process: by the kernel's maps, and by the
// marks that glibc's malloc, its thread library and CPython's pymalloc leave in their memory. It
// reads memory only through an interface, and treats what it reads there as hostile.
package region

import (
	"cmp"
	"slices"

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
//   - What the process changes during the call may have only the class of its mapping.
//
// memory returns nil for pages that are not resident: reading them would make the process fault
// them in. Classify asks for nothing across the end of a page, and reads at most some hundred
// thousand headers of any process.
//
// Heaps and mmapped chunks are those of glibc 2.26 to 2.43 on 64-bit machines. Thread stacks are
// found by their TCB on x86-64 only. Elsewhere glibc keeps no pointer to recognise a TCB by, and
// only stacks that glibc names to the kernel are found (2.39, glibc.mem.decorate_maps).
func Classify(maps []process.Mapping, starts []uint64, memory mem.Reader) []Region {
	f := newFinder(maps, memory)
	starts = f.possibleStarts(maps, starts)

	f.claim(f.arenaHeaps())
	f.claim(f.threadStacks(maps, starts))
	f.claim(f.walk(append(starts, ends(f.found)...)))

	scanned := f.scanForArenas()
	f.claim(scanned)
	f.claim(f.walk(ends(scanned)))

	return f.layOver(maps)
}

// ThreadStacks returns the thread stacks that Classify finds. starts are addresses at which
// mappings were seen to begin; a mapping that begins above a stack shows where the stack ends.
func ThreadStacks(maps []process.Mapping, starts []uint64, memory mem.Reader) []Region {
	f := newFinder(maps, memory)
	f.claim(f.threadStacks(maps, starts))
	return f.found
}

// pageSize is the kernel's page size in bytes.
var pageSize = process.PageSize

// maxPeeks bounds how many headers one call reads.
const maxPeeks = 1 << 18

// finder finds regions in the private anonymous memory of a process.
type finder struct {
	memory    mem.Reader
	peeksLeft int
	// areas are the ranges without a gap, whatever their protection. writable are those parts of
	// them that can be read and written.
	areas, writable mem.Spans
	// freeAreas and freeWritable are what no region has claimed of areas and writable.
	freeAreas, freeWritable mem.Spans
	// found are the regions so far: sorted, disjoint, each within one area.
	found []Region
}

func newFinder(maps []process.Mapping, memory mem.Reader) *finder {
	f := &finder{memory: memory, peeksLeft: maxPeeks}
	for _, m := range maps {
		if !isSearched(m) || (m.Start|m.End)%pageSize != 0 {
			continue
		}
		f.areas = extend(f.areas, m)
		if m.Read && m.Write {
			f.writable = extend(f.writable, m)
		}
	}

	f.freeAreas, f.freeWritable = f.areas, f.writable
	return f
}

// extend appends a mapping to spans. It leaves out a mapping that is not in order.
func extend(spans mem.Spans, m process.Mapping) mem.Spans {
	n := len(spans)
	switch {
	case m.Start >= m.End, n > 0 && m.Start < spans[n-1].End:
	case n > 0 && m.Start == spans[n-1].End:
		spans[n-1].End = m.End
	default:
		spans = append(spans, mem.Span{Start: m.Start, End: m.End})
	}
	return spans
}

// possibleStarts returns the addresses in writable areas at which a mapping begins or has begun.
func (f *finder) possibleStarts(maps []process.Mapping, starts []uint64) []uint64 {
	var possible []uint64
	add := func(address uint64) {
		if _, ok := f.writable.Find(address); ok && address%pageSize == 0 {
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
	f.freeAreas = f.areas.Subtract(claimed)
	f.freeWritable = f.writable.Subtract(claimed)
}

func ends(regions []Region) []uint64 {
	addresses := make([]uint64, len(regions))
	for i, r := range regions {
		addresses[i] = r.End
	}
	return addresses
}

// layOver returns the maps as regions, with the regions found in the place of what they cover.
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

// peek reads size bytes at each address, all within one page. It returns nil for what cannot be
// read, and once the call has read maxPeeks headers.
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

// peekFree is peek for addresses anywhere. It returns nil outside of what is free and writable.
func (f *finder) peekFree(addresses []uint64, size int) [][]byte {
	inside := make([]uint64, 0, len(addresses))
	indices := make([]int, 0, len(addresses))
	for i, address := range addresses {
		area, ok := f.freeWritable.Find(address)
		if ok && area.End-address >= uint64(size) {
			inside, indices = append(inside, address), append(indices, i)
		}
	}

	contents := make([][]byte, len(addresses))
	for i, content := range f.peek(inside, size) {
		contents[indices[i]] = content
	}
	return contents
}
