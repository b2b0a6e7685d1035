package region

import (
	"slices"

	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
)

// maxReadAhead bounds how many headers a walk reads ahead where chunks have the expected sizes.
const maxReadAhead = 64

// step is an address at which a walk expects a header. A region that begins there ends below end.
type step struct {
	address, end uint64
	// sizes are of the two chunks before, in bytes, the last one at last; 0: there is none.
	sizes pair
	run   int // how many chunks before had the expected size
}

// A pair is the sizes of two chunks that follow each other.
type pair [2]uint64

// then returns the pair that ends with a chunk of another size.
func (p pair) then(size uint64) pair { return pair{p[1], size} }

// walker goes from each chunk or pymalloc arena to the one that follows directly after it.
type walker struct {
	*finder
	sizes map[uint64]uint64 // of the chunk at an address whose header was read; 0 for no chunk
	// expected is the size of the chunk that has followed two others: a program allocates one buffer
	// after the other in a loop.
	expected map[pair]uint64
	found    []Region
	// next are the headers to be read in the next round. noChunks begin where a header is of no
	// chunk, and reach to the end of the area.
	next     []step
	noChunks []mem.Span
}

// visited is in walker.sizes once a walk has passed an address.
const visited = 1

// walk finds the mmapped chunks and pymalloc arenas that begin at one of the starts, or directly
// after another.
func (f *finder) walk(starts []uint64) []Region {
	w := &walker{
		finder: f, sizes: make(map[uint64]uint64, len(starts)), expected: make(map[pair]uint64),
	}
	w.next = f.firstSteps(starts)

	for len(w.next) > 0 && f.peeksLeft > 0 {
		steps := w.next
		w.next, w.noChunks = nil, nil

		w.readSizes(steps)
		for _, s := range steps {
			w.followChunks(s)
		}

		for _, a := range f.pymalloc().ArenasAt(w.noChunks) {
			w.found = append(w.found, anonymousRegion(PythonArena, a.Start, a.End))
			w.next = append(w.next, step{address: a.End, end: a.Area.End})
		}
	}
	return w.found
}

func (f *finder) firstSteps(starts []uint64) []step {
	slices.Sort(starts)
	steps := make([]step, 0, len(starts))
	for _, s := range slices.Compact(starts) {
		if area, ok := f.freeWritable.Find(s); ok {
			steps = append(steps, step{address: s, end: area.End})
		}
	}
	return steps
}

// readSizes reads the headers at steps, and ahead at those that follow if the chunks go on as
// before: a round costs a system call.
func (w *walker) readSizes(steps []step) {
	var headers mem.Spans // each from its address to the end of its area
	for _, s := range steps {
		for i := 0; i <= min(s.run, maxReadAhead) && s.address < s.end; i++ {
			if _, known := w.sizes[s.address]; !known {
				headers = append(headers, mem.Span{Start: s.address, End: s.end})
				w.sizes[s.address] = 0
			}
			size := w.expected[s.sizes]
			if size == 0 || size > s.end-s.address {
				break
			}
			s.address, s.sizes = s.address+size, s.sizes.then(size)
		}
	}

	addresses := make([]uint64, len(headers))
	for i, h := range headers {
		addresses[i] = h.Start
	}
	for i, content := range w.peek(addresses, glibc.MmappedHeaderSize) {
		if chunk, ok := glibc.MmappedChunk(content, headers[i].Start, headers[i].End); ok {
			w.sizes[chunk.Start] = chunk.Len()
		}
	}
}

// followChunks goes along chunks as far as their sizes are known.
func (w *walker) followChunks(s step) {
	for s.address < s.end {
		size, known := w.sizes[s.address]
		if !known {
			w.next = append(w.next, s)
			return
		}

		w.sizes[s.address] = visited
		if size == visited {
			return
		}
		if size == 0 {
			w.noChunks = append(w.noChunks, mem.Span{Start: s.address, End: s.end})
			return
		}

		w.found = append(w.found, anonymousRegion(MmappedChunk, s.address, s.address+size))
		if s.run++; size != w.expected[s.sizes] {
			w.expected[s.sizes], s.run = size, 0
		}
		s.address, s.sizes = s.address+size, s.sizes.then(size)
	}
}
