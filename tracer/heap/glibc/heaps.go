package glibc

import (
	"cmp"
	"errors"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Heaps are glibc's heaps, for a reader of their chunks.
type Heaps struct {
	// Spans are sorted. Each begins at a chunk, and chunk follows on chunk up to its end. One
	// that ends there is the top chunk, which is free. A heap that has no top any more ends with
	// fenceposts instead: one of 16 bytes, and one of size 0.
	Spans []mem.Span
	// Cached are the chunks in tcaches and fastbins, by the address of the header. They are free,
	// but their headers look like headers of chunks in use.
	Cached map[uint64]bool
}

// Heaps finds the heaps of a process. maps are the current ones. The error wraps ErrBrokenChain or
// ErrLargeHeap, or is from memory. A heap that has grown beyond maps is an ErrBrokenChain, too.
func (a *Malloc) Heaps(memory mem.Reader, maps []process.Mapping) (Heaps, error) {
	arenas, err := a.readArenas(memory)
	if err != nil {
		return Heaps{}, err
	}
	found, err := a.heapsOf(memory, maps, arenas)
	if err != nil {
		return Heaps{}, err
	}
	if len(found) == 0 {
		return Heaps{}, ErrBrokenChain
	}

	// The top chunk of another arena ends with its heap. The top chunk of the main one ends before
	// its heap where others have called sbrk.
	const attempts = 16
	for range attempts {
		if err = found[0].readTop(memory); !errors.Is(err, ErrBrokenChain) {
			break
		}
	}
	if err != nil {
		return Heaps{}, err
	}
	if found[0].grown {
		return Heaps{}, ErrBrokenChain
	}
	found[0].end = found[0].top.End

	var heaps Heaps
	for _, h := range found {
		heaps.Spans = append(heaps.Spans, mem.Span{Start: h.first, End: h.end})
	}
	slices.SortFunc(heaps.Spans, func(a, b mem.Span) int { return cmp.Compare(a.Start, b.Start) })
	for i, s := range heaps.Spans[1:] {
		if s.Start < heaps.Spans[i].End { // forged
			return Heaps{}, ErrBrokenChain
		}
	}

	listed, err := a.cachedObjects(memory, maps, arenas)
	heaps.Cached = make(map[uint64]bool, len(listed))
	for object := range listed {
		heaps.Cached[object-HeaderSize] = true
	}
	return heaps, err
}

// cachedObjects returns the objects in tcaches and fastbins.
func (a *Malloc) cachedObjects(
	memory mem.Reader, maps []process.Mapping, arenas []arena,
) (map[uint64]bool, error) {
	tcaches, err := a.findTcaches(memory, maps, arenas)
	if err != nil {
		return nil, err
	}
	return a.listedObjects(memory, arenas, tcaches)
}

const maxHeaps = 1 << 14 // of all arenas: 1 TiB

// A heapSpan is a heap of an arena. Its chunks lie from the first one to its top chunk, or to the
// fencepost with which a heap ends that has no top any more.
type heapSpan struct {
	start, first, end uint64
	// topAt is where the arena has the address of its top chunk; 0: the heap has none.
	topAt uint64
	// top is the top chunk when it was read; zero: it is to be read. The first chunk that is split
	// off it later begins there, too.
	top mem.Span
	// grown is set if the top chunk lies beyond the end: the heap has grown since the maps were read.
	grown bool
	// read is the end of the pages that a walk has read; 0: it has read none.
	read uint64
}

// heapsOf returns the heaps of arenas. The first arena is the main one.
func (a *Malloc) heapsOf(
	memory mem.Reader, maps []process.Mapping, arenas []arena,
) (heaps []heapSpan, err error) {
	for i, r := range arenas {
		var found []heapSpan
		if i == 0 {
			found, err = a.mainHeap(maps, r)
		} else {
			found, err = a.arenaHeaps(memory, r)
		}
		if err != nil {
			return nil, err
		}
		if heaps = append(heaps, found...); len(heaps) > maxHeaps {
			return nil, ErrLargeHeap
		}
	}
	return heaps, nil
}

// mainHeap returns the heap of the main arena. It fails where the heap goes on in other mappings,
// or has not begun.
func (a *Malloc) mainHeap(maps []process.Mapping, r arena) ([]heapSpan, error) {
	at := slices.IndexFunc(maps, func(m process.Mapping) bool { return m.End > r.top })
	if at < 0 || maps[at].Start > r.top { // between mappings: the heap has grown since
		at--
	}
	if at < 0 || maps[at].Path != "[heap]" {
		return nil, ErrBrokenChain
	}
	start, end := maps[at].Start, maps[at].End
	for _, o := range slices.Backward(maps) { // a fork splits it
		if o.Path == maps[at].Path && o.End == start {
			start = o.Start
		}
	}
	for _, o := range maps {
		if o.Path == maps[at].Path && o.Start == end {
			end = o.End
		}
	}
	return []heapSpan{{start: start, first: start, end: end, topAt: r.address + a.layout.top}}, nil
}

// arenaHeaps returns the heaps of another arena, the newest first, which has the top chunk.
func (a *Malloc) arenaHeaps(memory mem.Reader, r arena) (heaps []heapSpan, err error) {
	stateOffset := r.address % heapMaxSize
	topAt := r.address + a.layout.top
	for address := r.top &^ (heapMaxSize - 1); len(heaps) < maxHeaps; topAt = 0 {
		content, err := mem.PeekOne(memory, address, heapInfoSize)
		if err != nil {
			return nil, err
		}
		if content == nil {
			return nil, ErrBrokenChain
		}

		info := parseHeapInfo(content, address)
		first := address + stateOffset
		if info.prev == 0 { // the arena's own malloc_state lies there
			first = mem.AlignUp(r.address+a.layout.size, mallocAlignment)
		}
		if info.arPtr != r.address || info.size > heapMaxSize || address+info.size < first ||
			info.prev%heapMaxSize != 0 || first-address >= heapMaxSize || !isAligned(first) {
			return nil, ErrBrokenChain
		}
		heaps = append(heaps, heapSpan{
			start: address, first: first, end: address + info.size, topAt: topAt,
		})
		if info.prev == 0 {
			return heaps, nil
		}
		address = info.prev
	}
	return nil, ErrBrokenChain
}

// readTop reads the top chunk of the heap's arena, as far as the end of the heap.
func (h *heapSpan) readTop(memory mem.Reader) error {
	pointer, err := mem.PeekOne(memory, h.topAt, 8)
	if err != nil || pointer == nil {
		return errors.Join(err, ErrBrokenChain)
	}
	top := mem.Word(pointer, 0)
	if top >= h.end {
		h.grown = true
		return nil
	}

	// The size belongs to the top chunk only if the chunk is still the top.
	contents, err := memory.Peek([]uint64{top, h.topAt}, HeaderSize)
	if err != nil {
		return err
	}
	header, again := contents[0], contents[1]
	if header == nil || again == nil || mem.Word(again, 0) != top || top < h.first {
		return ErrBrokenChain
	}
	h.top = mem.Span{Start: top, End: top + min(chunkSize(header), h.end-top)}
	return nil
}
