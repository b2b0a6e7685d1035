package objects

import (
	"slices"

	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

const (
	// maxWalk is how much of a heap is read at once. A large chunk may begin in it, and is read in
	// vain.
	maxWalk = 2 << 20
	// maxNumbered is the memory in which the inside of large chunks is left out while an index is
	// made; of more, it is left out before, as an index takes memory for each page.
	maxNumbered = 4 << 30
)

// A heapReader reads the parts of a heap in order. It follows the chunks, and does not read the
// inside of large ones.
type heapReader struct {
	memory *memory
	index  int // of the region
	chain  *glibc.Chain
	visit  func(*piece) error
	skip   uint64 // the address at which the last large chunk ends, in whole pages
	bytes  uint64 // that are read at once
	end    uint64 // of the last piece

	// ahead are pages around the next headers, in order, and content has their bytes. It is one of
	// two buffers by turns, as the last piece may be in the other one.
	ahead   []uint64
	content []byte
	buffers [2][]byte
}

// eachOfHeaps reads the heaps, and calls visit for each piece. It notes the inside of large chunks
// in use.
func (m *memory) eachOfHeaps(visit func(*piece) error) error {
	m.inside = m.inside[:0]
	var r *heapReader
	for _, p := range m.parts {
		if m.regions[p.region].kind != regionHeap {
			continue
		}
		if r == nil || r.index != p.region {
			r = &heapReader{memory: m, index: p.region, visit: visit, bytes: process.PageSize}
			r.chain = &glibc.Chain{Memory: r, Heap: m.regions[p.region].Span, Cached: m.cached}
		}
		if err := r.readPart(p); err != nil {
			return err
		}
	}
	return nil
}

func (r *heapReader) readPart(whole part) error {
	m := r.memory
	for at := max(whole.Start, r.skip); at < whole.End; {
		if m.budget.check() {
			return errLate
		}
		p, err := r.readPiece(mem.Span{Start: at, End: whole.End})
		if err != nil {
			return err
		}
		p.chunks = r.chain.Through(&p.Piece)
		r.clearBulk(p)
		if err := visitAll(m, []*piece{p}, r.visit); err != nil {
			return err
		}

		at, r.bytes = p.End(), min(2*r.bytes, maxWalk)
		if len(p.chunks) == 0 {
			continue
		}
		last := p.chunks[len(p.chunks)-1]
		end := mem.AlignDown(last.End(), process.PageSize)
		switch {
		case last.Size < minLarge || end <= at:
		case firstsOf(last) > at: // its first words are in the next page
			r.bytes = process.PageSize
		default:
			r.noteInside(last, at)
			at, r.skip, r.bytes = end, end, process.PageSize // the next one may be large, too
		}
	}
	return nil
}

// readPiece reads whole pages of the heap, at the start of a range: as many as were read ahead, if
// any.
func (r *heapReader) readPiece(s mem.Span) (*piece, error) {
	in, n := r.memory.regions[r.index], uint64(0)
	i, isAhead := slices.BinarySearch(r.ahead, s.Start)
	for k := i; isAhead && k < len(r.ahead) && r.ahead[k] == s.Start+n && r.ahead[k] < s.End; k++ {
		n += process.PageSize
	}
	if n < min(r.bytes, s.Len()) {
		s.End = min(s.End, s.Start+r.bytes)
		r.end = s.End
		return r.memory.readPiece(s, in)
	}

	r.end = s.Start + n
	content := r.content[uint64(i)*process.PageSize:][:n:n]
	present := slices.Repeat([]bool{true}, int(n/process.PageSize))
	return &piece{
		Piece:  mem.Piece{Start: s.Start, Bytes: content, Present: present},
		memory: r.memory, region: in,
	}, nil
}

// Peek implements mem.Reader for the chain, which asks for a header that is in no piece. Behind a
// large chunk it reads the pages around the next headers as well.
func (r *heapReader) Peek(addresses []uint64, size int) ([][]byte, error) {
	at := addresses[0]
	page, from := mem.AlignDown(at, process.PageSize), at%process.PageSize
	if from+uint64(size) > process.PageSize { // a header is in one page
		return [][]byte{nil}, nil
	}
	i, isAhead := slices.BinarySearch(r.ahead, page)
	if !isAhead {
		if err := r.readAhead(at); err != nil {
			return nil, err
		}
		if i, isAhead = slices.BinarySearch(r.ahead, page); !isAhead {
			return [][]byte{nil}, nil
		}
	}
	return [][]byte{r.content[uint64(i)*process.PageSize+from:][:size]}, nil
}

// readAhead reads the page of a header. Behind a large chunk the next one may be large, too.
func (r *heapReader) readAhead(header uint64) (err error) {
	b := hostile.Blocks{At: header, End: r.chain.Heap.End, Long: minLarge, First: firstBytes}
	bytes := uint64(maxWalk)
	if header < r.end+process.PageSize {
		bytes = process.PageSize
	}

	r.buffers[0], r.buffers[1] = r.buffers[1], r.buffers[0]
	if r.buffers[0] == nil {
		r.buffers[0] = make([]byte, maxWalk)
	}
	r.content = r.buffers[0][:bytes]
	r.ahead, err = r.memory.reader.PeekBlocks(b, r.content)
	r.memory.read += uint64(len(r.ahead)) * process.PageSize
	return err
}

// firstBytes is how much of a chunk is read in any case: its header, and its first words, which may
// be an object.
const firstBytes = glibc.HeaderSize + maxInterior*wordSize

// firstsOf returns where the first words of a chunk end.
func firstsOf(k glibc.Chunk) uint64 { return k.Start + firstBytes }

// clearBulk erases the parts of large chunks in a piece that are free, or bulk data. The first
// words of each stay.
func (r *heapReader) clearBulk(p *piece) {
	for _, k := range p.chunks {
		if k.Size < minLarge {
			continue
		}
		s := mem.Span{Start: max(p.Start, firstsOf(k)), End: min(p.End(), k.End())}
		if s.Start >= s.End {
			continue
		}
		if content := p.At(s.Start, s.Len()); !k.InUse || r.memory.isBulk(content) {
			clear(content)
		}
	}
}

// noteInside notes the whole pages of a large chunk from an address on.
func (r *heapReader) noteInside(k glibc.Chunk, from uint64) {
	m := r.memory
	s := mem.Span{Start: from, End: mem.AlignDown(k.End(), process.PageSize)}
	if k.End() >= r.chain.Heap.End || !k.InUse { // the top chunk, too
		return
	}
	for _, resident := range m.spans.Within(s) {
		for _, one := range divide(resident, pieceBytes) {
			m.inside = append(m.inside, part{one, r.index})
		}
	}
}

// insideWithPointers returns the parts of large chunks that have pointers.
func (m *memory) insideWithPointers() (left []part, err error) {
	spans := make([]mem.Span, len(m.inside))
	for i, p := range m.inside {
		spans[i] = p.Span
	}
	isBulk, err := m.areBulk(spans)
	if err != nil {
		return nil, err
	}
	for i, p := range m.inside {
		if isBulk[i] {
			m.bulk += p.Len()
		} else {
			left = append(left, p)
		}
	}
	return left, nil
}

// leaveOutInside leaves the bulk data in large chunks out before anything else is read.
func (m *memory) leaveOutInside() error {
	if err := m.eachOfHeaps(func(*piece) error { return nil }); err != nil {
		return err
	}
	left, err := m.insideWithPointers()
	if err != nil {
		return err
	}
	var all, some []mem.Span
	for _, p := range m.inside {
		all = append(all, p.Span)
	}
	for _, p := range left {
		some = append(some, p.Span)
	}
	m.spans = m.spans.Subtract(mem.MergeSpans(all).Subtract(mem.MergeSpans(some)))
	m.parts = m.parts[:0]
	m.findParts()
	return nil
}
