package region

import "fmt"

// heapMax is HEAP_MAX_SIZE of glibc on 64-bit machines, to which heaps are aligned (malloc/arena.c).
const heapMax = 64 << 20

// A heap is the heap_info at the start of a heap, and where it lies. In 2.35 it got one more field and grew from 32 to 48 bytes;
// in an arena's first heap, the arena's malloc_state follows it.
type heap struct {
	start, arena, previous, size, protected uint64
}

const heapInfoSize = 32 // the part that all versions have

// heaps finds the heaps of glibc's arenas.
func (f *finder) heaps() []Region {
	var addresses []uint64
	for _, s := range f.open {
		for at := alignUp(s.start, heapMax); at >= s.start && at < s.end && len(addresses) < maxPeeks/4; at += heapMax {
			addresses = append(addresses, at)
		}
	}
	heaps := make(map[uint64]heap)
	for i, content := range f.peek(addresses, heapInfoSize) {
		if content == nil {
			continue
		}
		h := heap{addresses[i], word(content, 0), word(content, 8), word(content, 16), word(content, 24)}
		if f.isHeap(h) {
			heaps[h.start] = h
		}
	}
	var found []Region
	for _, h := range heaps {
		if h.isLinked(heaps) {
			found = append(found, Region{
				Start: h.start, End: h.start + heapMax, Class: Arena, Name: fmt.Sprintf("arena %#x", h.arena), Private: true,
			})
		}
	}
	return found
}

// isHeap reports whether the fields agree with each other and with what is mapped: all of a heap is mapped from the first, and
// can be written up to what the heap says, or up to less if it has grown since the maps were read.
func (f *finder) isHeap(h heap) bool {
	area, _ := holding(f.areas, h.start)
	open, _ := holding(f.writable, h.start)
	root := h.arena % heapMax
	return area.end-h.start >= heapMax && min(open.end-h.start, heapMax) <= h.protected &&
		h.protected <= heapMax && h.protected%pageSize == 0 && h.size <= h.protected && h.size > 0 &&
		(root == 32 || root == 48) && h.previous%heapMax == 0 && (h.previous == 0) == (h.arena-root == h.start)
}

// isLinked reports whether the arena's first heap and the one before are heaps of the same arena.
func (h heap) isLinked(heaps map[uint64]heap) bool {
	if h.previous == 0 {
		return true
	}
	first, before := heaps[h.arena-h.arena%heapMax], heaps[h.previous]
	return first.previous == 0 && first.arena == h.arena && before.arena == h.arena
}
