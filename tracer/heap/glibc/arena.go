package glibc

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// An arena is a malloc_state, as far as it was read.
type arena struct {
	address   uint64
	top       uint64
	fastbinsY []uint64 // chunks
}

// readArenas reads the arenas from the main one, as far as they can be read.
func (a *Malloc) readArenas(memory mem.Reader) ([]arena, error) {
	arenas, _, err := a.followRing(memory)
	return arenas, err
}

// followRing follows the links next of arenas from the main one, as far as they can be read.
// isClosed is set if they lead back to it.
func (a *Malloc) followRing(memory mem.Reader) (arenas []arena, isClosed bool, err error) {
	for address := a.mainArena; len(arenas) < maxArenas; {
		state, err := mem.PeekOne(memory, address, int(a.layout.bins))
		if err != nil {
			return nil, false, err
		}
		next, err := mem.PeekOne(memory, address+a.layout.next, 8)
		if err != nil {
			return nil, false, err
		}
		if state == nil || next == nil {
			break
		}

		read := arena{address: address, top: mem.Word(state, a.layout.top)}
		for i := uint64(0); i < nFastbins && a.layout.fastbinsY != 0; i++ {
			read.fastbinsY = append(read.fastbinsY, mem.Word(state, a.layout.fastbinsY+8*i))
		}
		arenas = append(arenas, read)

		address = mem.Word(next, 0)
		isClosed = address == a.mainArena
		if isClosed || address == 0 || address%8 != 0 {
			break
		}
	}
	return arenas, isClosed, nil
}

// readTops returns the top chunks of the arenas, which contain no object. A top chunk ends with a
// page. readTops reads the pointer to it again after its size: once another chunk is the top, the
// size belongs to a chunk in use.
func (a *Malloc) readTops(memory mem.Reader, arenas []arena) (mem.Spans, error) {
	addresses := make([]uint64, 0, 3*len(arenas))
	for _, r := range arenas {
		pointer := r.address + a.layout.top
		addresses = append(addresses, pointer, r.top, pointer)
	}
	contents, err := memory.Peek(addresses, HeaderSize)
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

		size, flags := chunkSize(header), flagsOf(header)
		end := r.top + size
		if r.top < heap.MaxAddress && size < maxRequest && end%process.PageSize == 0 &&
			flags&^nonMainArena == prevInUse {
			tops = append(tops, mem.Span{Start: r.top, End: end})
		}
	}
	return mem.MergeSpans(tops), nil
}

// binnedChunks returns the chunks in the arenas' bins, sorted. A dead object may have become part
// of one. The lists change during the read, so that each chunk is only a candidate.
func (a *Malloc) binnedChunks(memory mem.Reader, arenas []arena) ([]mem.Span, error) {
	addresses := a.binsOf(arenas)
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

// binAt returns the address that the head of an empty bin links to: itself, taken for a chunk
// (bin_at). bins is the address of the bins.
func binAt(bins uint64, bin int) uint64 { return bins + binSize*uint64(bin) - HeaderSize }

// followBins follows the links fd of all bins at once.
func followBins(memory mem.Reader, chunks []uint64) ([]mem.Span, error) {
	const fdOffset = HeaderSize
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
				chunk%mallocAlignment != 0 || chunk >= heap.MaxAddress {
				continue
			}
			seen[chunk] = true
			if size := chunkSize(content); size < maxRequest && isAligned(size) {
				found = append(found, mem.Span{Start: chunk, End: chunk + size})
				next = append(next, mem.Word(content, fdOffset))
			}
		}
		chunks = next
	}

	slices.SortFunc(found, func(a, b mem.Span) int { return cmp.Compare(a.Start, b.Start) })
	return found, nil
}
