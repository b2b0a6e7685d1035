package region

import (
	"fmt"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// heapMaxSize is HEAP_MAX_SIZE on 64-bit machines, in bytes. Heaps are aligned to it.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/arena.c#L28
const heapMaxSize = 64 << 20

// heapInfo is the heap_info at the start of a heap.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/arena.c#L66
type heapInfo struct {
	address      uint64
	arPtr        uint64 // address of the arena's malloc_state
	prev         uint64 // the previous heap of the arena; 0 in the first one
	size         uint64 // bytes in use
	mprotectSize uint64 // bytes that can be read and written
}

const heapInfoSize = 32 // bytes up to mprotect_size, in all versions

// arenaHeaps finds the heaps of glibc's arenas other than the main one.
func (f *finder) arenaHeaps() []Region {
	var addresses []uint64
	for _, s := range f.freeWritable {
		for address := mem.AlignUp(s.Start, heapMaxSize); address >= s.Start && address < s.End &&
			len(addresses) < maxPeeks/4; address += heapMaxSize {
			addresses = append(addresses, address)
		}
	}

	heaps := make(map[uint64]heapInfo)
	for i, content := range f.peek(addresses, heapInfoSize) {
		if content == nil {
			continue
		}
		h := heapInfo{
			addresses[i], mem.Word(content, 0), mem.Word(content, 8), mem.Word(content, 16), mem.Word(content, 24),
		}
		if f.isHeap(h) {
			heaps[h.address] = h
		}
	}

	var found []Region
	for _, h := range heaps {
		if h.isLinked(heaps) {
			r := anonymousRegion(Arena, h.address, h.address+heapMaxSize)
			r.Name = fmt.Sprintf("arena %#x", h.arPtr)
			found = append(found, r)
		}
	}
	return found
}

// isHeap reports whether the fields agree with each other and with the maps. glibc maps all of a
// heap at once, and makes it writable up to mprotect_size. The maps may show less where the heap
// has grown since they were read.
//
// The first heap of an arena has its malloc_state right behind the heap_info, which grew from 32
// to 48 bytes in glibc 2.35.
func (f *finder) isHeap(h heapInfo) bool {
	area, _ := f.areas.Find(h.address)
	writable, _ := f.writable.Find(h.address)
	stateOffset := h.arPtr % heapMaxSize

	return area.End-h.address >= heapMaxSize &&
		min(writable.End-h.address, heapMaxSize) <= h.mprotectSize &&
		h.mprotectSize <= heapMaxSize && h.mprotectSize%pageSize == 0 &&
		h.size <= h.mprotectSize && h.size > 0 &&
		(stateOffset == 32 || stateOffset == 48) &&
		h.prev%heapMaxSize == 0 && (h.prev == 0) == (h.arPtr-stateOffset == h.address)
}

// isLinked reports whether the arena's first heap and the previous one are heaps of the same
// arena.
func (h heapInfo) isLinked(heaps map[uint64]heapInfo) bool {
	if h.prev == 0 {
		return true
	}
	first, previous := heaps[h.arPtr-h.arPtr%heapMaxSize], heaps[h.prev]
	return first.prev == 0 && first.arPtr == h.arPtr && previous.arPtr == h.arPtr
}

// A chunk that malloc has mapped begins with mchunk_prev_size 0, and mchunk_size with the flag
// IS_MMAPPED alone. For an alignment of more than 16 bytes, memalign writes a second header right
// below the memory that the program gets: mchunk_prev_size is then the offset of that header, and
// mchunk_size is less by as much. The first header keeps the size that was mapped, which mremap
// may have changed since. From 2.43 on, mchunk_size excludes the header's 16 bytes.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L2402 (sysmalloc_mmap)
// https://github.com/bminor/glibc/blob/glibc-2.43/malloc/malloc.c#L1445 (mmap_set_chunk)
const (
	mmappedHeaderSize = 128 // bytes read of a chunk: enough for alignments up to 128 bytes
	isMmapped         = 2   // IS_MMAPPED
	sizeFlags         = 15  // sizes are multiples of 16 (MALLOC_ALIGNMENT)
)

// mmappedChunkSize returns the size of the chunk that begins with a header, in bytes. It returns 0
// if there is none of at most maxSize bytes.
func mmappedChunkSize(header []byte, maxSize uint64) uint64 {
	if header == nil || mem.Word(header, 0) != 0 {
		return 0
	}

	size := mappedSize(mem.Word(header, 8), 0)
	for offset := uint64(16); size > 0 && offset+16 <= mmappedHeaderSize; offset = 2*offset + 16 {
		prevSize, mchunkSize := mem.Word(header, int(offset)), mem.Word(header, int(offset)+8)
		if total := mappedSize(mchunkSize, offset); prevSize == offset && total > 0 {
			size = total
		}
	}

	if size > maxSize {
		return 0
	}
	return size
}

// mappedSize returns how many bytes were mapped for a chunk, by the mchunk_size of a header at an
// offset. It returns 0 for a word that is no such size.
func mappedSize(mchunkSize, offset uint64) uint64 {
	flags, end := mchunkSize&sizeFlags, mchunkSize&^sizeFlags+offset
	total := mem.AlignUp(end, pageSize)
	if flags != isMmapped || end <= offset || total < end || total != end && total != end+16 {
		return 0
	}
	return total
}

// A thread's struct pthread begins with its TCB, whose fields tcb and self point to it. The field
// list links it to the descriptors of other threads. The fields stackblock, stackblock_size and
// guardsize are adjacent near its end, at an offset that differs by version. It lies in the last
// page of the stack.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/nptl/descr.h#L130
// https://github.com/bminor/glibc/blob/glibc-2.41/sysdeps/x86_64/nptl/tls.h#L42
const (
	tcbOffset         = 0
	selfOffset        = 16
	threadListOffset  = 704 // of list; all offsets are those of x86-64
	threadAlignment   = 16
	defaultStackSize  = 8 << 20 // bytes, without the guard
	maxStackPages     = 1 << 14 // searched for descriptors
	stackTopPageBytes = 4096
)

// threadStacks finds the stacks of threads that glibc made.
func (f *finder) threadStacks(maps []process.Mapping, starts []uint64) []Region {
	var found []Region
	seen := make(map[uint64]bool)
	candidates := f.stackTopPages(maps, starts)

	for len(candidates) > 0 && len(seen) < maxStackPages {
		var unseen []uint64
		for _, page := range candidates {
			_, isFree := f.freeWritable.Find(page)
			if isFree && !seen[page] && len(seen) < maxStackPages {
				seen[page] = true
				unseen = append(unseen, page)
			}
		}

		candidates = nil
		for i, content := range f.peek(unseen, stackTopPageBytes) {
			if content == nil {
				continue
			}
			t, ok := f.findThread(unseen[i], content)
			if !ok {
				continue
			}
			found = append(found, t.stack)
			for _, descriptor := range t.neighbors {
				candidates = append(candidates, descriptor&^(stackTopPageBytes-1))
			}
		}
	}
	return found
}

// stackTopPages returns the pages that may be the last ones of stacks. They lie below the end of a
// mapping above a guard. Inside such a mapping, they lie below where another mapping has begun, or
// where a stack of the default size would end.
func (f *finder) stackTopPages(maps []process.Mapping, starts []uint64) []uint64 {
	var tops []uint64
	for i, m := range maps {
		isGuarded := i > 0 && maps[i-1].End == m.Start && !maps[i-1].Read && isSearched(maps[i-1])
		if !isGuarded || !m.Write || !isSearched(m) {
			continue
		}
		tops = append(tops, m.End-stackTopPageBytes)
		if m.Len() > defaultStackSize {
			tops = append(tops, m.Start+defaultStackSize-stackTopPageBytes)
		}
	}

	for _, s := range starts {
		tops = append(tops, s-stackTopPageBytes)
	}
	return tops
}

// thread is a thread whose descriptor was found.
type thread struct {
	stack     Region
	neighbors [2]uint64 // descriptors of the next and previous thread in glibc's list
}

// findThread searches a page for the struct pthread of a thread.
func (f *finder) findThread(page uint64, content []byte) (thread, bool) {
	for at := 0; at+threadListOffset+16 <= len(content); at += threadAlignment {
		self := page + uint64(at)
		if mem.Word(content, at+tcbOffset) != self || mem.Word(content, at+selfOffset) != self {
			continue
		}

		area, _ := f.areas.Find(self)
		for i := at + threadListOffset + 16; i+24 <= len(content); i += 8 {
			stackblock, size, guard := mem.Word(content, i), mem.Word(content, i+8), mem.Word(content, i+16)
			if isStack(stackblock, size, guard, page, area) {
				next, prev := mem.Word(content, at+threadListOffset), mem.Word(content, at+threadListOffset+8)
				return thread{
					anonymousRegion(ThreadStack, stackblock, stackblock+size),
					[2]uint64{next - threadListOffset, prev - threadListOffset},
				}, true
			}
		}
	}
	return thread{}, false
}

// isStack reports whether the words may be stackblock, stackblock_size and guardsize of a stack
// that ends with a page of an area.
func isStack(stackblock, size, guard, lastPage uint64, area mem.Span) bool {
	return stackblock >= area.Start && stackblock <= lastPage &&
		size <= area.Len() && guard < size &&
		(stackblock|size|guard)%pageSize == 0 && stackblock+size == lastPage+stackTopPageBytes
}
