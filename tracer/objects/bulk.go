package objects

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/allocscope/allocscope/tracer/cpython"
	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/heap/pymalloc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// leaveOutBulk takes the windows of anonymous memory without pointers out of the spans: tensors,
// images, arrays. A trainer has gigabytes of these beside some hundred MiB of objects, and a census
// or search reads all that is left.
func (m *memory) leaveOutBulk() error {
	var windows []mem.Span
	for _, r := range m.regions {
		if r.kind != regionAnonymous {
			continue
		}
		for _, s := range m.spans.Within(wholePages(r.Span)) {
			for _, w := range divide(s, windowBytes) {
				if w.Len() >= minBulk {
					windows = append(windows, w)
				}
			}
		}
	}

	isBulk, err := m.areBulk(windows)
	if err != nil {
		return err
	}

	// The variables of running functions are few words, which the probes may miss.
	var bulk []mem.Span
	for i, w := range windows {
		if isBulk[i] && len(m.frames.Intersect(mem.Spans{w})) == 0 {
			bulk = append(bulk, w)
		}
	}

	left := mem.MergeSpans(bulk)
	small, err := m.smallWithPointers(left)
	if err != nil {
		return err
	}
	first, err := m.firstWithPointers(left)
	if err != nil {
		return err
	}

	m.leaveOut(left.Subtract(small).Subtract(first))
	return nil
}

// leaveOut takes memory without pointers out of the spans.
func (m *memory) leaveOut(bulk mem.Spans) {
	m.bulk += bulk.Len()
	m.spans = m.spans.Subtract(bulk)
}

const (
	// maxMissed is the size of the largest block that no probe of a window may lie in.
	maxMissed = 80 << 10
	// maxSmallBytes bounds the bytes read of small blocks. A search reads at most as much of slabs
	// again.
	maxSmallBytes = 32 << 20
	// maxHeaderBytes bounds the bulk data whose pages are searched for headers of chunks.
	maxHeaderBytes = 256 << 20
)

// smallWithPointers returns the small blocks of jemalloc in bulk data that have pointers all the
// same: the probes of a window may miss the table of a list between large blocks.
func (m *memory) smallWithPointers(bulk mem.Spans) (mem.Spans, error) {
	if m.others == nil || len(bulk) == 0 {
		return nil, nil
	}

	slabs, extents, err := m.others.Small(bulk, maxMissed)
	if err != nil {
		return nil, err
	}
	extents = extents[:min(len(extents), maxSmallBytes/probeBytes)]
	found, err := m.extentsWithPointers(extents, 2)
	if err != nil {
		return nil, err
	}

	budget := maxSmallBytes - uint64(len(extents))*probeBytes
	inSlabs, err := m.slabsWithPointers(slabs.Intersect(bulk), budget)
	if err != nil {
		return nil, err
	}

	return mem.MergeSpans(append(found, inSlabs...)), nil
}

// firstWithPointers returns where mapped chunks of glibc in bulk data begin with pointers, up to
// the end of the window: a table that is filled from its start may begin anywhere between two
// probes.
func (m *memory) firstWithPointers(bulk mem.Spans) (mem.Spans, error) {
	if m.others != nil {
		return nil, nil
	}
	if err := m.findHeaders(bulk); err != nil {
		return nil, err
	}

	var first []mem.Span
	for _, b := range m.mmapped {
		if _, isBulk := bulk.Find(b.Start); isBulk {
			end := min(b.End, b.Start|(windowBytes-1)+1)
			first = append(first, mem.Span{Start: b.Start, End: end})
		}
	}
	found, err := m.extentsWithPointers(first, 0)
	return mem.MergeSpans(found), err
}

// findHeaders finds the mapped chunks that begin in bulk data, unless it is too large: a chunk
// behind another mapping of the program is found by its header alone.
func (m *memory) findHeaders(bulk mem.Spans) error {
	if bulk.Len() > maxHeaderBytes {
		return nil
	}
	var pages []uint64
	for _, s := range bulk {
		for at := s.Start; at < s.End; at += process.PageSize {
			pages = append(pages, at)
		}
	}
	for some := range slices.Chunk(pages, probesAtOnce) {
		headers, err := m.reader.Peek(some, glibc.HeaderSize)
		if err != nil {
			return err
		}
		for i, header := range headers {
			r, _ := m.regionAt(some[i])
			if chunk, ok := glibc.MmappedChunk(header, some[i], r.End); ok {
				m.addMmapped(block{glibc.UserOf(chunk), blockMmapped})
			}
		}
	}
	return nil
}

// extentsWithPointers probes the start of extents, or the middle: a part of their length.
func (m *memory) extentsWithPointers(
	extents []mem.Span, part uint64,
) (found []mem.Span, err error) {
	for some := range slices.Chunk(extents, probesAtOnce) {
		var probes []uint64
		for _, e := range some {
			at := e.Start
			if part > 0 {
				at += e.Len() / part
			}
			probes = append(probes, at&^(probeBytes-1))
		}

		contents, err := m.reader.Peek(probes, probeBytes)
		if err != nil {
			return nil, err
		}
		for i, content := range contents {
			if content != nil && m.hasPointers(content) {
				found = append(found, wholePages(some[i]))
			}
		}
	}

	return found, nil
}

// slabsWithPointers reads slabs up to a number of bytes, first where there are few: a slab may be
// alone between large blocks, and where there are many, the probes have seen some.
func (m *memory) slabsWithPointers(slabs mem.Spans, most uint64) (found []mem.Span, err error) {
	for _, spans := range windowsOf(slabs) {
		if spans.Len() > most {
			break
		}
		most -= spans.Len()

		for _, s := range spans {
			s = wholePages(s)
			p, err := m.readPiece(s, region{})
			if err != nil {
				return nil, err
			}
			chunks := slices.Collect(slices.Chunk(p.Bytes, probeBytes))
			if slices.ContainsFunc(chunks, m.hasPointers) {
				found = append(found, s)
			}
		}
	}

	return found, nil
}

// windowsOf divides spans by the windows that they are in, the windows with the fewest bytes first.
func windowsOf(spans mem.Spans) (windows []mem.Spans) {
	last := uint64(0)
	for _, s := range spans {
		for _, part := range divide(s, windowBytes) {
			window := part.Start / windowBytes
			if len(windows) == 0 || window != last {
				windows, last = append(windows, nil), window
			}
			windows[len(windows)-1] = append(windows[len(windows)-1], part)
		}
	}

	slices.SortStableFunc(windows, func(a, b mem.Spans) int {
		return cmp.Compare(a.Len(), b.Len())
	})
	return windows
}

// areBulk reports which ranges of memory have no pointers, by probes of each. Memory that cannot be
// read has none. The probes lie at equal distances, and many ranges share one call.
func (m *memory) areBulk(ranges []mem.Span) ([]bool, error) {
	isBulk := make([]bool, len(ranges))
	var probes []uint64
	var indices []int // of the range of each probe
	flush := func() error {
		contents, err := m.reader.Peek(probes, probeBytes)
		if err != nil {
			return err
		}
		for i, content := range contents {
			if content == nil {
				continue
			}
			// Probes at equal distances may meet nothing but pools of small buffers.
			isPool := pymalloc.IsPool(probes[i], content, m.poolSize)
			if isPool {
				m.pools[probes[i]/windowBytes]++
			}
			if isPool || m.hasPointers(content) {
				isBulk[indices[i]] = false
			}
		}
		probes, indices = probes[:0], indices[:0]
		return nil
	}

	for i, s := range ranges {
		isBulk[i] = true
		n := probesOf(s.Len())
		for k := range n {
			at := (s.Start + s.Len()*(2*k+1)/(2*n)) &^ (probeBytes - 1)
			switch k { // where the header of a pool is, of an arena that ends or begins within
			case 0:
				at = s.Start &^ (probeBytes - 1)
			case n - 1:
				at = (s.End - 1) &^ (pymalloc.MaxPoolSize - 1)
			}
			probes, indices = append(probes, at), append(indices, i)
		}
		if len(probes) >= probesAtOnce {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	return isBulk, flush()
}

// probesOf returns the number of probes in some bytes.
func probesOf(bytes uint64) uint64 { return max(minProbes, min(maxProbes, bytes/probedBytes)) }

// isBulk reports whether memory that was read has no pointers, by as many probes as areBulk.
func (m *memory) isBulk(content []byte) bool {
	size := uint64(len(content))
	n := probesOf(size)
	for k := range n {
		at := mem.AlignDown(size*(2*k+1)/(2*n), wordSize)
		if k == 0 { // a table is filled from its start
			at = 0
		}
		if m.hasPointers(content[at:min(size, at+probeBytes)]) {
			return false
		}
	}
	return true
}

// hasPointers reports whether a page has words that lead to memory that may have objects. Floats
// and pixels that look like one address are rare, and two of them in a probe are rarer. But a float
// with a zero beside it looks like an address below 4 GiB. In a program that is linked there, the
// heap has such addresses, and more of them are needed; a mask has one float a thousand times, so
// that a word which is repeated counts only if it leads to an object, as the types of objects do.
func (m *memory) hasPointers(page []byte) bool {
	var low [minLowPointers]uint64 // words that differ
	high, lows := 0, 0
	for i := 0; i+wordSize <= len(page); i += wordSize {
		w := binary.LittleEndian.Uint64(page[i:])
		if w%wordSize != 0 || w <= process.PageSize || w >= maxAddress {
			continue
		}

		v, ok := process.FindMapping(m.maps, w)
		switch {
		case !ok || !v.Read:
			continue
		case w > math.MaxUint32 || v.IsFile():
			high++
		case !slices.Contains(low[:lows], w):
			low[lows], lows = w, lows+1
		case m.isObject(w):
			return true
		}
		if high >= minPointers || lows >= minLowPointers {
			return true
		}
	}
	return false
}

// isObject reports whether a word leads to an object of CPython: it has a type, which has one, and
// the type of all types is its own.
func (m *memory) isObject(address uint64) bool {
	first := address
	isOne, isKnown := m.areObjects[first]
	if isKnown {
		return isOne
	}

	const maxTypeDepth = 4
	for range maxTypeDepth {
		head, err := m.reader.Peek([]uint64{address + cpython.ObType}, wordSize)
		if err != nil || head[0] == nil {
			break
		}
		typ := mem.Word(head[0], 0)
		if isOne = typ == address; isOne || typ%wordSize != 0 || !m.isMapped(typ) {
			break
		}
		address = typ
	}
	if m.areObjects == nil {
		m.areObjects = make(map[uint64]bool)
	}
	if len(m.areObjects) < maxTypes {
		m.areObjects[first] = isOne
	}
	return isOne
}
