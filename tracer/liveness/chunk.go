package liveness

import "os"

// A chunk is what malloc cuts memory into: the size of the chunk before it, where that is free; its own size, with flags; then
// what the program gets, which takes the first word of the next chunk, too (malloc/malloc.c).
const (
	headerSize    = 16
	chunkFlags    = 15 // sizes are multiples of 16
	previousInUse = 1
	isMapped      = 2
	notMain       = 4
	minChunk      = 32
	maxRequest    = 1 << 47
)

// pageSize of this machine, in bytes.
var pageSize = uint64(os.Getpagesize())

const hugePage = 2 << 20 // bytes; glibc.malloc.hugetlb=2 rounds to such, on arm64 to larger ones

// chunkFor is the size of the chunk for a request.
func chunkFor(bytes uint64) uint64 { return max(minChunk, alignUp(bytes+8, 16)) }

// fits reports whether a chunk with this size word may serve the object.
func (a *Allocator) fits(o Object, previous, sizeWord uint64) bool {
	size, flags := sizeWord&^chunkFlags, sizeWord&chunkFlags
	switch {
	case flags&^(previousInUse|isMapped|notMain) != 0:
		return false
	case flags&isMapped != 0:
		return flags == isMapped && fitsMapped(o, previous, size)
	case size < chunkFor(o.Size):
		return false
	}
	return size <= a.largest(o)
}

// largest is the size of the largest chunk in the heap that may serve the object. What would be left over is given along if
// it is too small for a chunk of its own; memalign also leaves what is as large as the smallest.
func (a *Allocator) largest(o Object) uint64 {
	size := chunkFor(o.Size)
	switch {
	case o.Address%pageSize == 0: // pvalloc makes the request whole pages
		size = chunkFor(alignUp(o.Size, pageSize)) + minChunk
	case o.Address%32 == 0:
		size += minChunk
	default:
		size += minChunk - 16
	}
	if a.loose && size > maxSmallCached {
		return 2 * size
	}
	return size
}

// fitsMapped is fits for a chunk that is a mapping of its own: previous is then its distance from the mapping's start. From
// 2.43 on its size is without the header. realloc may keep a page more than is needed.
func fitsMapped(o Object, previous, size uint64) bool {
	start, end := o.Address-headerSize-previous, size+previous
	if previous > o.Address-headerSize || previous >= maxRequest || size >= maxRequest || start%pageSize != 0 {
		return false
	}
	total := alignUp(end, pageSize)
	if total != end && total != end+headerSize {
		return false
	}
	if size+headerSize < o.Size+8 {
		return false
	}
	least := alignUp(chunkFor(o.Size)+headerSize, pageSize)
	return previous > 0 || total <= least+pageSize || total%hugePage == 0
}
