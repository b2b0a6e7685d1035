package glibc

import (
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A malloc_chunk begins with mchunk_prev_size, the size of the chunk before if that is free, and
// mchunk_size, its own size with flags. The memory that the program gets follows. It includes the
// mchunk_prev_size of the next chunk.
//
// Three bits of mchunk_size are flags. Bit 3 is none, and is never set: chunks are aligned to 16
// bytes, so that a size with it shows that there is no chunk.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L1138
const (
	// HeaderSize is how many bytes of a chunk lie before the memory of the program: CHUNK_HDR_SZ.
	HeaderSize      = 16
	mallocAlignment = 16 // MALLOC_ALIGNMENT
	minSize         = 32 // MINSIZE, bytes of the smallest chunk
	wordSize        = 8  // SIZE_SZ

	// SharedSize is how many bytes at the end of a chunk's memory the next chunk has, too.
	SharedSize = wordSize

	prevInUse    = 1 // PREV_INUSE
	isMmapped    = 2 // IS_MMAPPED
	nonMainArena = 4 // NON_MAIN_ARENA
	sizeBits     = prevInUse | isMmapped | nonMainArena
)

const (
	maxRequest   = 1 << 47
	hugePageSize = 2 << 20 // to which glibc.malloc.hugetlb=2 rounds; on arm64 to larger ones
)

func mchunkPrevSize(header []byte) uint64 { return mem.Word(header, 0) }
func mchunkSize(header []byte) uint64     { return mem.Word(header, 8) }

// chunkSize returns mchunk_size without its flags.
func chunkSize(header []byte) uint64 { return mchunkSize(header) &^ sizeBits }

func flagsOf(header []byte) uint64 { return mchunkSize(header) & sizeBits }

func isAligned(size uint64) bool { return size%mallocAlignment == 0 }

// A Chunk is a malloc_chunk of a heap.
type Chunk struct {
	Start, Size uint64
	InUse       bool // by the chunk that follows
}

// End returns where the next chunk begins.
func (c Chunk) End() uint64 { return c.Start + c.Size }

// User returns the memory that the program has: the mchunk_prev_size of the next chunk is part of
// it.
func (c Chunk) User() mem.Span {
	return mem.Span{Start: c.Start + HeaderSize, End: c.End() + wordSize}
}

// ParseChunk returns the chunk of a header, which has HeaderSize bytes or more. It returns false if
// the header is of no chunk that lies in a heap and ends at an address or before. InUse is not set.
func ParseChunk(header []byte, start, end uint64) (Chunk, bool) {
	if len(header) < HeaderSize {
		return Chunk{}, false
	}
	c := Chunk{Start: start, Size: chunkSize(header)}
	return c, c.Size >= minSize && c.Size < maxRequest && isAligned(c.Size) && c.End() <= end &&
		flagsOf(header)&isMmapped == 0
}

// IsPrevInUse reports whether the chunk before one with this header is in use.
func IsPrevInUse(header []byte) bool { return mchunkSize(header)&prevInUse != 0 }

// MayBeAlike reports whether requests of one size may have got blocks of two sizes: malloc does not
// split off less than a chunk.
func MayBeAlike(a, b uint64) bool { return a+mallocAlignment >= b && a <= b+mallocAlignment }

// chunksOf returns the addresses of the chunks of objects (mem2chunk).
func chunksOf(objects []uint64) []uint64 {
	chunks := make([]uint64, len(objects))
	for i, address := range objects {
		chunks[i] = address - HeaderSize
	}
	return chunks
}

func addressesOf(objects []heap.Object) []uint64 {
	addresses := make([]uint64, len(objects))
	for i, o := range objects {
		addresses[i] = o.Address
	}
	return addresses
}

// SizeClass returns the size of the chunk that malloc makes for a request, in bytes: request2size.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L1316
func SizeClass(bytes uint64) uint64 {
	return max(minSize, mem.AlignUp(bytes+wordSize, mallocAlignment))
}

// ChunkOf returns the chunk of an object in a heap, without the mchunk_prev_size that belongs to the
// chunk before.
func ChunkOf(o heap.Object) mem.Span {
	start := o.Address - wordSize
	return mem.Span{Start: start, End: start + SizeClass(o.Size)}
}

// SizeClass implements heap.Allocator.
func (a *Malloc) SizeClass(size uint64) uint64 { return SizeClass(size) }

// fits reports whether a chunk with this header may be an object's.
func (a *Malloc) fits(o heap.Object, header []byte) bool {
	size, flags := chunkSize(header), flagsOf(header)
	if flags&isMmapped != 0 {
		return flags == isMmapped && fitsMmapped(o, mchunkPrevSize(header), size)
	}
	return isAligned(size) && SizeClass(o.Size) <= size && size <= a.maxChunkSize(o)
}

// maxChunkSize returns the size of the largest chunk in a heap that may be an object's.
// malloc does not split off a remainder of less than MINSIZE, memalign none of just MINSIZE
// either.
func (a *Malloc) maxChunkSize(o heap.Object) uint64 {
	size := SizeClass(o.Size)
	switch {
	case o.Address%process.PageSize == 0: // pvalloc rounds the request up to whole pages
		size = SizeClass(mem.AlignUp(o.Size, process.PageSize)) + minSize
	case o.Address%32 == 0:
		size += minSize
	default:
		size += minSize - mallocAlignment
	}

	if a.hasLargeTcacheBins && size > maxSmallTcacheSize {
		return 2 * size
	}
	return size
}
