package glibc

import (
	"cmp"
	"errors"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// HeapChunks has the sums over all chunks in the heaps of all arenas, in bytes. Chunks with a
// mapping of their own are in none of them.
type HeapChunks struct {
	// InUse are the chunks that the program has, and malloc's own at the ends of heaps. Cached are
	// the chunks in tcaches and fastbins, whose headers look like headers of chunks in use. Free
	// are all others: chunks in bins, and the top chunks.
	InUse, Cached, Free uint64
	// FreeResident is the part of Cached and Free that is in RAM.
	FreeResident uint64
	// Large are the largest chunks in use, of minLargeChunk on, maxLargeChunks at most, by address.
	Large mem.Spans
	// ByBins: the heaps are above a GiB. The bins were followed, and not all headers read: Large is not
	// known.
	ByBins bool
}

// Reasons for which heaps cannot be walked.
var (
	ErrBrokenChain = errors.New("the chain of chunks is broken")
	ErrLargeHeap   = errors.New("the heap is too large to be walked")
)

// Bounds of a walk.
const (
	maxWalkedPages  = 1 << 18 // pages that are read, and as many that are read again
	maxPiecePages   = 1 << 6  // pages that are read at once
	maxChainRetries = 1 << 10 // of all heaps
	// maxSameBreaks is how often a chain is read again that breaks at one address each time, from up to
	// 31 pieces before: the heap has grown, and the maps of before end there.
	maxSameBreaks  = 5
	maxLargeChunks = 1 << 12
	minLargeChunk  = 64 << 10 // bytes
)

// WalkHeaps reads the headers of all chunks, from the start of each heap to its end. Each size
// leads to the next chunk, whose PREV_INUSE shows whether the one before is free. Where the heaps are
// above a GiB, it follows the bins instead, unless these have too many chunks. resident returns how
// many bytes of a range are in RAM.
//
// The process goes on meanwhile. A chain that does not fit, because chunks were split or merged
// between two reads, is read again from a little before. The error wraps ErrBrokenChain or
// ErrLargeHeap, or comes from memory.
func (a *Malloc) WalkHeaps(
	memory mem.Reader, maps []process.Mapping, resident func(start, end uint64) uint64,
) (HeapChunks, error) {
	arenas, err := a.readArenas(memory)
	if err != nil {
		return HeapChunks{}, err
	}

	heaps, err := a.heapsOf(memory, maps, arenas)
	if err != nil {
		return HeapChunks{}, err
	}

	w := heapWalk{memory: memory, resident: resident}
	all := uint64(0)
	for _, h := range heaps {
		all += h.end - h.start
	}
	if all > maxWalkedPages*mem.PeekSize {
		if w.sum, err = a.sumBins(memory, arenas, heaps, resident, maxFreeReads); err != nil {
			return HeapChunks{}, err
		}
		heaps = nil
	}
	for _, h := range heaps {
		if err := w.walk(h); err != nil {
			return HeapChunks{}, err
		}
	}
	err = a.addCached(memory, maps, arenas, &w)
	return w.sum, err
}

// addCached takes the chunks in tcaches and fastbins out of the chunks in use.
func (a *Malloc) addCached(
	memory mem.Reader, maps []process.Mapping, arenas []arena, w *heapWalk,
) error {
	listed, err := a.cachedObjects(memory, maps, arenas)
	if err != nil {
		return err
	}

	chunks := make([]uint64, 0, len(listed))
	for object := range listed {
		chunks = append(chunks, object-HeaderSize)
	}
	w.sum.Large = slices.DeleteFunc(w.sum.Large,
		func(chunk mem.Span) bool { return listed[chunk.Start+HeaderSize] })
	slices.SortFunc(w.sum.Large, func(a, b mem.Span) int { return cmp.Compare(a.Start, b.Start) })
	headers, err := memory.Peek(chunks, HeaderSize)
	if err != nil {
		return err
	}
	for i, header := range headers {
		if header == nil || chunkSize(header) > w.sum.InUse {
			continue
		}
		size := chunkSize(header)
		w.sum.InUse -= size
		w.sum.Cached += size
		w.sum.FreeResident += w.resident(chunks[i], chunks[i]+size)
	}
	return nil
}

// heapWalk is a walk over all heaps.
type heapWalk struct {
	memory   mem.Reader
	resident func(start, end uint64) uint64
	sum      HeapChunks
	pages    int // read so far
	again    int // of them, reads within the part read before
	retries  int
	buffer   []byte // of a piece
}

// chainState is where a walk is within a heap.
type chainState struct {
	// at is the next chunk. size is the size of the chunk before; 0: there is none.
	at, size uint64
	sum      HeapChunks
}

// walk adds the chunks of a heap to the sum. Where the chain breaks, it goes back by no piece, then
// by one, three, seven and so on: the chunk with which a piece began may have been merged
// meanwhile.
func (w *heapWalk) walk(h heapSpan) error {
	// The states at which pieces begin.
	pieces := []chainState{{at: h.first, sum: HeapChunks{InUse: h.first - h.start}}}
	breaks, farthest := 0, uint64(0) // breaks of the chain, up to an address
	same, last := 0, uint64(0)       // breaks in a row at one address

	for count := 1; ; {
		state := pieces[len(pieces)-1]
		from := state.at
		ended, err := w.walkPiece(&h, &state, count)

		switch {
		case errors.Is(err, ErrBrokenChain):
			if same++; state.at != last {
				same, last = 0, state.at
			}
			if w.retries++; w.retries > maxChainRetries || same > maxSameBreaks {
				return err
			}
			back := min(1<<breaks-1, len(pieces)-1)
			pieces = pieces[:len(pieces)-back]
			breaks, farthest = min(breaks+1, 16), max(farthest, state.at)
			h.top, h.grown = mem.Span{}, false
		case err != nil:
			return err
		case ended:
			w.sum.add(state.sum)
			return nil
		default:
			// Where all pages have chunks, many are read at once.
			if state.at-from < uint64(2*count)*mem.PeekSize {
				count = min(2*count, maxPiecePages)
			} else {
				count = 1
			}
			if state.at > farthest {
				breaks = 0
			}
			pieces = append(pieces, state)
		}
	}
}

func (c *HeapChunks) add(more HeapChunks) {
	c.InUse += more.InUse
	c.Cached += more.Cached
	c.Free += more.Free
	c.FreeResident += more.FreeResident
	c.Large = append(c.Large, more.Large[:min(len(more.Large), maxLargeChunks-len(c.Large))]...)
}

// walkPiece reads so many pages from a chunk on, and follows the chain through them. It returns
// true at the end of the heap.
func (w *heapWalk) walkPiece(h *heapSpan, s *chainState, count int) (ended bool, err error) {
	if h.topAt != 0 && h.top.Len() == 0 && !h.grown {
		if err := h.readTop(w.memory); err != nil {
			return false, err
		}
	}
	if h.grown && s.at >= h.end {
		return true, nil
	}

	start := s.at &^ (mem.PeekSize - 1)
	var addresses []uint64
	for address := start; address < h.end && len(addresses) < count; address += mem.PeekSize {
		addresses = append(addresses, address)
		if address < h.read {
			w.again++
		}
	}
	switch w.pages += len(addresses); {
	case w.pages-w.again > maxWalkedPages:
		return false, ErrLargeHeap
	case w.again > maxWalkedPages:
		return false, ErrBrokenChain
	}
	h.read = max(h.read, start+uint64(len(addresses))*mem.PeekSize)

	if n := len(addresses) * mem.PeekSize; n > len(w.buffer) {
		w.buffer = make([]byte, n)
	}
	contents, err := mem.PeekInto(w.memory, w.buffer, addresses, mem.PeekSize)
	if err != nil {
		return false, err
	}
	if len(addresses) == 0 {
		return false, ErrBrokenChain
	}

	for s.at < start+uint64(len(addresses))*mem.PeekSize {
		page := contents[(s.at-start)/mem.PeekSize]
		if page == nil {
			return false, ErrBrokenChain
		}
		header := page[s.at%mem.PeekSize:][:HeaderSize]
		size := chunkSize(header)
		isEnd := h.topAt == 0 && size == 0 && h.end-s.at <= minSize

		switch {
		case flagsOf(header)&isMmapped != 0 || !isAligned(size) || !w.close(s, header):
			return false, ErrBrokenChain
		case isEnd:
			s.sum.InUse += h.end - s.at
			return true, nil
		case h.topAt != 0 && !h.grown && s.at == h.top.Start:
			s.sum.Free += h.top.Len()
			s.sum.FreeResident += w.resident(h.top.Start, h.top.End)
			return true, nil
		case h.grown && size >= h.end-s.at: // it goes on beyond the end
			return true, nil
		case size < HeaderSize || size >= h.end-s.at || h.topAt != 0 && !h.grown && s.at > h.top.Start:
			return false, ErrBrokenChain
		}
		s.at, s.size = s.at+size, size
	}
	return false, nil
}

// close adds the chunk before, by the header of the chunk that follows. It returns false where the
// two contradict each other.
func (w *heapWalk) close(s *chainState, next []byte) bool {
	if s.size == 0 {
		return true // next is the first chunk
	}

	switch isFree := mchunkSize(next)&prevInUse == 0; {
	case !isFree:
		s.sum.InUse += s.size
		if s.size >= minLargeChunk && len(s.sum.Large) < maxLargeChunks {
			s.sum.Large = append(s.sum.Large, mem.Span{Start: s.at - s.size, End: s.at})
		}
	case mchunkPrevSize(next) != s.size:
		return false
	default:
		s.sum.Free += s.size
		s.sum.FreeResident += w.resident(s.at-s.size, s.at)
	}
	return true
}
