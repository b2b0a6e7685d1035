package liveness

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A malloc_chunk begins with mchunk_prev_size, the size of the chunk before if that is free, and
// mchunk_size, its own size with flags. The memory that the program gets follows. It includes the
// mchunk_prev_size of the next chunk.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L1138
const (
	headerSize      = 16 // CHUNK_HDR_SZ
	mallocAlignment = 16 // MALLOC_ALIGNMENT
	minSize         = 32 // MINSIZE, bytes of the smallest chunk

	prevInUse    = 1 // PREV_INUSE
	isMmapped    = 2 // IS_MMAPPED
	nonMainArena = 4 // NON_MAIN_ARENA
	sizeFlags    = 15
)

const (
	maxRequest   = 1 << 47
	maxAddress   = 1 << 56 // of user space
	hugePageSize = 2 << 20 // to which glibc.malloc.hugetlb=2 rounds; on arm64 to larger ones
)

func mchunkPrevSize(header []byte) uint64 { return mem.Word(header, 0) }
func mchunkSize(header []byte) uint64     { return mem.Word(header, 8) }

// chunkSize returns mchunk_size without its flags.
func chunkSize(header []byte) uint64 { return mchunkSize(header) &^ sizeFlags }

// chunksOf returns the addresses of the chunks of objects (mem2chunk).
func chunksOf(objects []uint64) []uint64 {
	chunks := make([]uint64, len(objects))
	for i, address := range objects {
		chunks[i] = address - headerSize
	}
	return chunks
}

func addressesOf(objects []Object) []uint64 {
	addresses := make([]uint64, len(objects))
	for i, o := range objects {
		addresses[i] = o.Address
	}
	return addresses
}

// request2size returns the size of the chunk that malloc makes for a request, in bytes.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L1316
func request2size(bytes uint64) uint64 { return max(minSize, mem.AlignUp(bytes+8, mallocAlignment)) }

// SizeClass implements Allocator: the size of the chunk.
func (a *glibc) SizeClass(size uint64) uint64 { return request2size(size) }

// fits reports whether a chunk with this header may be the one of an object.
func (a *glibc) fits(o Object, header []byte) bool {
	size, flags := chunkSize(header), mchunkSize(header)&sizeFlags
	switch {
	case flags&^(prevInUse|isMmapped|nonMainArena) != 0:
		return false
	case flags&isMmapped != 0:
		return flags == isMmapped && fitsMmapped(o, mchunkPrevSize(header), size)
	case size < request2size(o.Size):
		return false
	}
	return size <= a.maxChunkSize(o)
}

// HaveMappings reports which objects have a mapping of their own: an mmapped chunk of glibc.
func HaveMappings(memory mem.Reader, objects []Object) ([]bool, error) {
	headers, err := memory.Peek(chunksOf(addressesOf(objects)), headerSize)
	if err != nil {
		return nil, err
	}

	have := make([]bool, len(objects))
	for i, header := range headers {
		have[i] = header != nil && mchunkSize(header)&sizeFlags == isMmapped &&
			fitsMmapped(objects[i], mchunkPrevSize(header), chunkSize(header))
	}
	return have, nil
}

// maxChunkSize returns the size of the largest chunk in a heap that may be the one of an object.
// malloc does not split off a remainder of less than MINSIZE, memalign none of just MINSIZE
// either.
func (a *glibc) maxChunkSize(o Object) uint64 {
	size := request2size(o.Size)
	switch {
	case o.Address%process.PageSize == 0: // pvalloc rounds the request up to whole pages
		size = request2size(mem.AlignUp(o.Size, process.PageSize)) + minSize
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

// fitsMmapped is fits for a chunk with IS_MMAPPED. prevSize is its offset in what was mapped. From
// 2.43 on, size excludes the header. realloc may keep a page more than necessary.
func fitsMmapped(o Object, prevSize, size uint64) bool {
	chunk := o.Address - headerSize
	if prevSize > chunk || prevSize >= maxRequest || size >= maxRequest ||
		(chunk-prevSize)%process.PageSize != 0 {
		return false
	}

	end := size + prevSize
	total := mem.AlignUp(end, process.PageSize)
	if total != end && total != end+headerSize || size+headerSize < o.Size+8 {
		return false
	}
	least := mem.AlignUp(request2size(o.Size)+headerSize, process.PageSize)
	return prevSize > 0 || total <= least+process.PageSize || total%hugePageSize == 0
}

// mallocState is where a malloc_state has its fields, in bytes from its start.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L1814
type mallocState struct {
	fastbinsY uint64 // 0 where the version has no fastbins
	top       uint64
	bins      uint64
	next      uint64
	size      uint64
}

// mallocStates are those of 2.27 to 2.42, and from 2.43 on, which has no fastbins.
var mallocStates = []mallocState{
	{fastbinsY: 16, top: 96, bins: 112, next: 2160, size: 2200},
	{top: 8, bins: 24, next: 2072, size: 2112},
}

const (
	nBins           = 127 // heads in bins: NBINS less bin 0, which does not exist
	nFastbins       = 10  // NFASTBINS
	binSize         = 16  // bytes of a head: fd and bk
	maxArenas       = 1 << 10
	maxBinRounds    = 256     // rounds of following all bins by one chunk
	maxBinnedChunks = 1 << 15 // chunks
)

// arena is what was read of a malloc_state.
type arena struct {
	address   uint64
	top       uint64
	fastbinsY []uint64 // chunks
}

// readArenas follows the ring of arenas from the main one, as far as it can be read.
func (a *glibc) readArenas(memory mem.Reader) ([]arena, error) {
	var arenas []arena
	for address := a.mainArena; len(arenas) < maxArenas; {
		state, err := mem.PeekOne(memory, address, int(a.layout.bins))
		if err != nil {
			return nil, err
		}
		next, err := mem.PeekOne(memory, address+a.layout.next, 8)
		if err != nil {
			return nil, err
		}
		if state == nil || next == nil {
			break
		}

		read := arena{address: address, top: mem.Word(state, int(a.layout.top))}
		for i := 0; i < nFastbins && a.layout.fastbinsY != 0; i++ {
			read.fastbinsY = append(read.fastbinsY, mem.Word(state, int(a.layout.fastbinsY)+8*i))
		}
		arenas = append(arenas, read)

		address = mem.Word(next, 0)
		if address == a.mainArena || address%8 != 0 || address == 0 {
			break
		}
	}
	return arenas, nil
}

// readTops returns the top chunks of the arenas, which contain no object. A top chunk ends with a
// page. readTops reads the pointer to it again after its size: once another chunk is the top, the
// size is that of a chunk in use.
func (a *glibc) readTops(memory mem.Reader, arenas []arena) (mem.Spans, error) {
	addresses := make([]uint64, 0, 3*len(arenas))
	for _, r := range arenas {
		pointer := r.address + a.layout.top
		addresses = append(addresses, pointer, r.top, pointer)
	}
	contents, err := memory.Peek(addresses, headerSize)
	if err != nil {
		return nil, err
	}

	var tops []mem.Span
	for i, r := range arenas {
		before, header, after := contents[3*i], contents[3*i+1], contents[3*i+2]
		if before == nil || header == nil || after == nil ||
			mem.Word(before, 0) != r.top || mem.Word(after, 0) != r.top {
			continue
		}

		size, flags := chunkSize(header), mchunkSize(header)&sizeFlags
		end := r.top + size
		if r.top < maxAddress && size < maxRequest && end%process.PageSize == 0 &&
			flags&^nonMainArena == prevInUse {
			tops = append(tops, mem.Span{Start: r.top, End: end})
		}
	}
	return mem.MergeSpans(tops), nil
}

// binnedChunks returns the chunks in the arenas' bins, sorted. A dead object may have become part
// of one. The lists change during the read, so that each chunk is only a candidate.
func (a *glibc) binnedChunks(memory mem.Reader, arenas []arena) ([]mem.Span, error) {
	addresses := make([]uint64, len(arenas))
	for i, r := range arenas {
		addresses[i] = r.address + a.layout.bins
	}
	contents, err := memory.Peek(addresses, binSize*nBins)
	if err != nil {
		return nil, err
	}

	var chunks []uint64
	for i, bins := range contents {
		for bin := 0; bin < nBins && bins != nil; bin++ {
			fd := mem.Word(bins, binSize*bin)
			if fd != binAt(addresses[i], bin) {
				chunks = append(chunks, fd)
			}
		}
	}
	return followBins(memory, chunks)
}

// binAt returns what the head of an empty bin links to: itself, taken for a chunk (bin_at). bins
// is the address of the bins.
func binAt(bins uint64, bin int) uint64 { return bins + binSize*uint64(bin) - headerSize }

// followBins follows the links fd of all bins at once.
func followBins(memory mem.Reader, chunks []uint64) ([]mem.Span, error) {
	const fdOffset = headerSize
	var found []mem.Span
	seen := make(map[uint64]bool)

	for round := 0; len(chunks) > 0 && round < maxBinRounds; round++ {
		contents, err := memory.Peek(chunks, fdOffset+8)
		if err != nil {
			return nil, err
		}

		var next []uint64
		for i, content := range contents {
			chunk := chunks[i]
			if content == nil || seen[chunk] || len(found) >= maxBinnedChunks ||
				chunk%mallocAlignment != 0 || chunk >= maxAddress {
				continue
			}
			seen[chunk] = true
			if size := chunkSize(content); size < maxRequest {
				found = append(found, mem.Span{Start: chunk, End: chunk + size})
				next = append(next, mem.Word(content, fdOffset))
			}
		}
		chunks = next
	}

	slices.SortFunc(found, func(a, b mem.Span) int { return cmp.Compare(a.Start, b.Start) })
	return found, nil
}
