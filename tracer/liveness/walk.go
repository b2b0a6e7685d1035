package liveness

import (
	"errors"

	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency/pages"
)

// HeapChunks is what the heaps of all arenas consist of, in bytes. Chunks with a mapping of their
// own are in none of them.
type HeapChunks struct {
	// InUse are the chunks that the program has, and what malloc keeps at the ends of heaps. Cached
	// are those in tcaches and fastbins, whose headers are those of chunks in use. Free are all
	// others: those in bins, and the top chunks.
	InUse, Cached, Free uint64
	// FreeResident is the part of Cached and Free that is in RAM.
	FreeResident uint64
}

// Reasons for which heaps cannot be walked.
var (
	ErrBrokenChain = errors.New("the chain of chunks is broken")
	ErrNotGlibc    = errors.New("malloc is not glibc's")
	ErrLargeHeap   = errors.New("the heap is too large to be walked")
)

// Bounds of a walk.
const (
	maxWalkedPages  = 1 << 17 // pages that are read
	maxPiecePages   = 1 << 6  // pages that are read at once
	maxChainRetries = 1 << 10 // of all heaps
	maxHeaps        = 1 << 12 // heaps of one arena
)

// heapMaxSize is HEAP_MAX_SIZE on 64-bit machines: heaps of other arenas than the main one are
// aligned to it.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/arena.c#L28
const heapMaxSize = 64 << 20

// WalkHeaps reads the headers of all chunks, from the start of each heap to its end. Each size leads
// to the next chunk, whose PREV_INUSE shows whether the one before is free. resident returns how
// many bytes of a range are in RAM.
//
// The process goes on meanwhile. A chain that does not fit, because chunks were split or merged
// between two reads, is read again from a little before. The error wraps ErrBrokenChain or
// ErrLargeHeap, or is that of memory.
func (a *glibc) WalkHeaps(
	memory Memory, maps []process.Mapping, resident func(start, end uint64) uint64,
) (HeapChunks, error) {
	arenas, err := a.readArenas(memory)
	if err != nil {
		return HeapChunks{}, err
	}

	w := heapWalk{memory: memory, resident: resident}
	for i, r := range arenas {
		heaps, err := a.arenaHeaps(memory, r)
		if i == 0 {
			heaps, err = a.mainHeap(maps, r)
		}
		if err != nil {
			return HeapChunks{}, err
		}
		for _, h := range heaps {
			if err := w.walk(h); err != nil {
				return HeapChunks{}, err
			}
		}
	}
	return w.sum, a.addCached(memory, maps, arenas, &w)
}

// addCached takes the chunks in tcaches and fastbins out of those in use.
func (a *glibc) addCached(
	memory Memory, maps []process.Mapping, arenas []arena, w *heapWalk,
) error {
	tcaches, err := a.findTcaches(memory, maps, arenas)
	if err != nil {
		return err
	}
	listed, err := a.listedObjects(memory, arenas, tcaches)
	if err != nil {
		return err
	}

	chunks := make([]uint64, 0, len(listed))
	for object := range listed {
		chunks = append(chunks, object-headerSize)
	}
	headers, err := memory.Peek(chunks, headerSize)
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

// A heapSpan is a heap of an arena. Its chunks lie from the first one to its top chunk, or to the
// fencepost with which a heap ends that has no top any more.
type heapSpan struct {
	start, first, end uint64
	// topAt is where the arena has the address of its top chunk; 0: the heap has none.
	topAt uint64
	// top is the top chunk when it was read; zero: it is to be read. What is taken from it later
	// begins there, too.
	top pages.Span
}

// mainHeap returns the heap of the main arena. It fails where that goes on in other mappings, or has
// not begun.
func (a *glibc) mainHeap(maps []process.Mapping, r arena) ([]heapSpan, error) {
	m, ok := process.FindMapping(maps, r.top)
	if !ok || m.Path != "[heap]" {
		return nil, ErrBrokenChain
	}
	h := heapSpan{start: m.Start, first: m.Start, end: m.End, topAt: r.address + a.layout.top}
	return []heapSpan{h}, nil
}

// arenaHeaps returns the heaps of another arena, the newest first, which has the top chunk.
func (a *glibc) arenaHeaps(memory Memory, r arena) (heaps []heapSpan, err error) {
	infoSize := r.address % heapMaxSize
	topAt := r.address + a.layout.top
	for address := r.top &^ (heapMaxSize - 1); len(heaps) < maxHeaps; topAt = 0 {
		info, err := peekOne(memory, address, 3*8)
		if err != nil {
			return nil, err
		}
		if info == nil || word(info, 0) != r.address {
			return nil, ErrBrokenChain
		}

		prev, size := word(info, 8), word(info, 16)
		first := address + infoSize
		if prev == 0 { // the arena's own malloc_state lies there
			first = alignUp(r.address+a.layout.size, mallocAlignment)
		}
		if size > heapMaxSize || address+size < first || prev%heapMaxSize != 0 || first-address >= heapMaxSize ||
			first%mallocAlignment != 0 {
			return nil, ErrBrokenChain
		}
		heaps = append(heaps, heapSpan{
			start: address, first: first, end: address + size, topAt: topAt,
		})
		if prev == 0 {
			return heaps, nil
		}
		address = prev
	}
	return nil, ErrBrokenChain
}

// heapWalk is a walk over all heaps.
type heapWalk struct {
	memory   Memory
	resident func(start, end uint64) uint64
	sum      HeapChunks
	pages    int // read so far
	retries  int
}

// chainState is where a walk is within a heap.
type chainState struct {
	// at is the next chunk. size is that of the chunk before; 0: there is none.
	at, size uint64
	sum      HeapChunks
}

// walk adds the chunks of a heap to the sum. Where the chain breaks, it goes back by no piece, then by
// one, three, seven and so on: the chunk with which a piece began may have been merged meanwhile.
func (w *heapWalk) walk(h heapSpan) error {
	// The states at which pieces begin.
	pieces := []chainState{{at: h.first, sum: HeapChunks{InUse: h.first - h.start}}}
	breaks, farthest := 0, uint64(0) // breaks of the chain, up to an address

	for count := 1; ; {
		state := pieces[len(pieces)-1]
		from := state.at
		ended, err := w.walkPiece(&h, &state, count)

		switch {
		case errors.Is(err, ErrBrokenChain):
			if w.retries++; w.retries > maxChainRetries {
				return err
			}
			back := min(1<<breaks-1, len(pieces)-1)
			pieces = pieces[:len(pieces)-back]
			breaks, farthest = min(breaks+1, 16), max(farthest, state.at)
			h.top = pages.Span{}
		case err != nil:
			return err
		case ended:
			w.sum.add(state.sum)
			return nil
		default:
			// Where all pages have chunks, many are read at once.
			if state.at-from < uint64(2*count)*peekSize {
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
}

// walkPiece reads so many pages from a chunk on, and follows the chain through them. It returns
// true at the end of the heap.
func (w *heapWalk) walkPiece(h *heapSpan, s *chainState, count int) (ended bool, err error) {
	if h.topAt != 0 && h.top.Len() == 0 {
		if err := h.readTop(w.memory); err != nil {
			return false, err
		}
	}

	start := s.at &^ (peekSize - 1)
	var addresses []uint64
	for address := start; address < h.end && len(addresses) < count; address += peekSize {
		addresses = append(addresses, address)
	}
	if w.pages += len(addresses); w.pages > maxWalkedPages {
		return false, ErrLargeHeap
	}
	contents, err := w.memory.Peek(addresses, peekSize)
	if err != nil {
		return false, err
	}
	if len(addresses) == 0 {
		return false, ErrBrokenChain
	}

	for s.at < start+uint64(len(addresses))*peekSize {
		page := contents[(s.at-start)/peekSize]
		if page == nil {
			return false, ErrBrokenChain
		}
		header := page[s.at%peekSize:][:headerSize]
		size := chunkSize(header)
		isEnd := h.topAt == 0 && size == 0 && h.end-s.at <= minSize

		switch {
		case mchunkSize(header)&(isMmapped|8) != 0 || !w.close(s, header):
			return false, ErrBrokenChain
		case isEnd:
			s.sum.InUse += h.end - s.at
			return true, nil
		case h.topAt != 0 && s.at == h.top.Start:
			s.sum.Free += h.top.Len()
			s.sum.FreeResident += w.resident(h.top.Start, h.top.End)
			return true, nil
		case size < headerSize || size >= h.end-s.at || h.topAt != 0 && s.at > h.top.Start:
			return false, ErrBrokenChain
		}
		s.at, s.size = s.at+size, size
	}
	return false, nil
}

// readTop reads the top chunk of the heap's arena.
func (h *heapSpan) readTop(memory Memory) error {
	pointer, err := peekOne(memory, h.topAt, 8)
	if err != nil || pointer == nil {
		return errors.Join(err, ErrBrokenChain)
	}
	top := word(pointer, 0)

	// The size belongs to the top chunk only if that is the top still.
	contents, err := memory.Peek([]uint64{top, h.topAt}, headerSize)
	if err != nil {
		return err
	}
	header, again := contents[0], contents[1]
	if header == nil || again == nil || word(again, 0) != top || top < h.first || top > h.end ||
		chunkSize(header) > h.end-top {
		return ErrBrokenChain
	}
	h.top = pages.Span{Start: top, End: top + chunkSize(header)}
	return nil
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
	case mchunkPrevSize(next) != s.size:
		return false
	default:
		s.sum.Free += s.size
		s.sum.FreeResident += w.resident(s.at-s.size, s.at)
	}
	return true
}

// WalkHeaps walks the heaps of the process, see glibc.WalkHeaps. Where they grow beyond the maps
// meanwhile, it begins again.
func (a ProcessAllocator) WalkHeaps(
	p *process.Process, resident func(start, end uint64) uint64,
) (chunks HeapChunks, err error) {
	malloc, ok := a.Allocator.(*glibc)
	if !ok {
		return HeapChunks{}, errors.Join(a.err, ErrNotGlibc)
	}

	const attempts = 3
	for range attempts {
		maps, err := p.Maps()
		if err != nil {
			return HeapChunks{}, err
		}
		memory, err := newPrivateMemory(p, maps)
		if err != nil {
			return HeapChunks{}, err
		}
		chunks, err = malloc.WalkHeaps(memory, maps, resident)
		if !errors.Is(err, ErrBrokenChain) {
			return chunks, err
		}
	}
	return HeapChunks{}, ErrBrokenChain
}
