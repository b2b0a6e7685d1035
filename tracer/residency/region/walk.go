package region

import (
	"slices"

	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/mem"
)

// maxReadAhead bounds how many headers a walk reads ahead in a run of chunks of one size.
const maxReadAhead = 64

// step is an address at which a walk expects a header. A region that begins there ends below end.
type step struct {
	address, end uint64
	// size and run describe the chunks before: their common size in bytes, 0 if there are none, and
	// their number.
	size uint64
	run  int
}

// walker goes from each chunk or pymalloc arena to the one that follows directly after it.
type walker struct {
	*finder
	sizes map[uint64]uint64 // of the chunk at an address whose header was read; 0 for no chunk
	found []Region
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
	w := &walker{finder: f, sizes: make(map[uint64]uint64, len(starts))}
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

// readSizes reads the headers at steps, and ahead at those that follow if the run of chunks of
// one size goes on. Programs allocate many of one size in a row, and a round costs a system call.
func (w *walker) readSizes(steps []step) {
	var headers mem.Spans // each from its address to the end of its area
	for _, s := range steps {
		for i := 0; i <= min(s.run, maxReadAhead) && s.address < s.end; i++ {
			if _, known := w.sizes[s.address]; !known {
				headers = append(headers, mem.Span{Start: s.address, End: s.end})
				w.sizes[s.address] = 0
			}
			if s.size == 0 || s.size > s.end-s.address {
				break
			}
			s.address += s.size
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
		if size != s.size {
			s.size, s.run = size, 0
		}
		s.run++
		s.address += size
	}
}
