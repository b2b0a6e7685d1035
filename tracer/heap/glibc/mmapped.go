package glibc

import (
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A chunk that malloc has mapped begins with mchunk_prev_size 0, and mchunk_size with the flag
// IS_MMAPPED alone. For an alignment of more than 16 bytes, memalign writes a second header right
// below the memory that the program gets: mchunk_prev_size is then the offset of that header, and
// mchunk_size is less by as much. The first header keeps the size that was mapped, which mremap
// may have changed since. From 2.43 on, mchunk_size excludes the header's 16 bytes.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L2402 (sysmalloc_mmap)
// https://github.com/bminor/glibc/blob/glibc-2.43/malloc/malloc.c#L1445 (mmap_set_chunk)

// MmappedHeaderSize is the number of bytes to read of a chunk with a mapping of its own, so that
// MmappedChunk finds alignments of up to as many bytes. With fewer bytes it finds only the other
// chunks.
const MmappedHeaderSize = 128

// MmappedChunk returns the chunk with a mapping of its own that begins with a header, of HeaderSize
// bytes or more, up to the end of the mapping. It returns false if there is none that ends at an
// address or before.
func MmappedChunk(header []byte, start, end uint64) (mem.Span, bool) {
	if len(header) < HeaderSize || mchunkPrevSize(header) != 0 {
		return mem.Span{}, false
	}

	size := mappedSize(mchunkSize(header), 0)
	for at := HeaderSize; size > 0 && at+HeaderSize <= len(header); at = 2*at + HeaderSize {
		offset, inner := uint64(at), header[at:]
		total := mappedSize(mchunkSize(inner), offset)
		if mchunkPrevSize(inner) == offset && total > 0 {
			size = total
		}
	}
	return mem.Span{Start: start, End: start + size}, size > 0 && start <= end && size <= end-start
}

// UserOf returns the memory that the program has of a chunk with a mapping of its own.
func UserOf(mmapped mem.Span) mem.Span {
	return mem.Span{Start: mmapped.Start + HeaderSize, End: mmapped.End}
}

// MmappedChunkOf returns the chunk with a mapping of its own that has an object.
func MmappedChunkOf(o heap.Object) mem.Span {
	return mem.Span{
		Start: o.Address - HeaderSize, End: mem.AlignUp(o.Address+o.Size, process.PageSize),
	}
}

// mappedSize returns how many bytes were mapped for a chunk, by the mchunk_size of a header at an
// offset. It returns 0 for a word that is no such size.
func mappedSize(mchunkSize, offset uint64) uint64 {
	flags, end := mchunkSize&sizeBits, mchunkSize&^sizeBits+offset
	total := mem.AlignUp(end, process.PageSize)
	isWhole := total == end || total == end+HeaderSize
	if flags != isMmapped || end <= offset || total < end || !isWhole {
		return 0
	}
	return total
}

// HaveMappings reports which objects have a mapping of their own: an mmapped chunk.
func HaveMappings(memory mem.Reader, objects []heap.Object) ([]bool, error) {
	headers, err := memory.Peek(chunksOf(addressesOf(objects)), HeaderSize)
	if err != nil {
		return nil, err
	}

	have := make([]bool, len(objects))
	for i, header := range headers {
		have[i] = header != nil && flagsOf(header) == isMmapped &&
			fitsMmapped(objects[i], mchunkPrevSize(header), chunkSize(header))
	}
	return have, nil
}

// fitsMmapped is fits for a chunk with IS_MMAPPED. prevSize is its offset in the mapping. realloc
// may keep a page more than necessary.
func fitsMmapped(o heap.Object, prevSize, size uint64) bool {
	chunk := o.Address - HeaderSize
	if prevSize > chunk || prevSize >= maxRequest || size >= maxRequest ||
		(chunk-prevSize)%process.PageSize != 0 || size+HeaderSize < o.Size+wordSize {
		return false
	}

	total := mappedSize(size|isMmapped, prevSize)
	least := mem.AlignUp(SizeClass(o.Size)+HeaderSize, process.PageSize)
	return total > 0 &&
		(prevSize > 0 || total <= least+process.PageSize || total%hugePageSize == 0)
}
