package residency

import (
	"cmp"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/residency/region"
)

const (
	// maxOlderWalk is the time of the latest walk that may find blocks older than the trace: the
	// blocks allocated until then are too few to matter.
	maxOlderWalk = 5 * time.Second

	// minBlockBytes is the size from which on a block is watched, and minUntouched the least part
	// of it that is not in memory. maxBlocks bounds the blocks of a snapshot.
	minBlockBytes = 1 << 20
	minUntouched  = 64 << 10
	maxBlocks     = 256
)

// keepOlder keeps the large chunks that are older than the trace: the first walk has found them in
// use, and each later one. A chunk in its place of the same size may be a younger one; Older leaves it
// out if it is known.
func (t *Tracker) keepOlder(inUse mem.Spans, at time.Duration) {
	if t.older == nil {
		t.older = []mem.Span{}
		if at <= maxOlderWalk {
			t.older = inUse
		}
		return
	}

	t.older = slices.DeleteFunc(t.older, func(chunk mem.Span) bool {
		i, found := slices.BinarySearchFunc(inUse, chunk.Start,
			func(c mem.Span, start uint64) int { return cmp.Compare(c.Start, start) })
		return !found || inUse[i] != chunk
	})
}

// Older returns the large blocks of malloc that are older than the trace and in use, as far as it is
// known. known are the live objects that are younger. Where they are not complete, any block may be
// a younger one, and none is older from then on.
func (t *Tracker) Older(known []estimate.LiveObject, complete bool) mem.Spans {
	if !complete {
		t.older = []mem.Span{}
	}
	for _, o := range known {
		if i, found := t.olderAt(o.Address); found {
			t.older = slices.Delete(t.older, i, i+1)
		}
	}
	return mem.MergeSpans(slices.Clone(t.older))
}

// olderAt returns the index of the chunk that contains an address.
func (t *Tracker) olderAt(address uint64) (i int, found bool) {
	return slices.BinarySearchFunc(t.older, address, func(chunk mem.Span, address uint64) int {
		switch {
		case chunk.End <= address:
			return -1
		case chunk.Start > address:
			return 1
		}
		return 0
	})
}

// Blocks returns the blocks that are not in memory as a whole, or were not at an earlier scan: the
// ones with most left to touch. Rows must be filled.
func (t *Tracker) Blocks(rows *Rows) (blocks []growth.Block) {
	partial := make(map[mem.Span]bool)
	add := func(span mem.Span, bytes mem.Bytes, isObject bool) {
		touched := min(bytes.InMemory()+bytes.Swapped, int64(span.Len()))
		left := int64(span.Len()) - touched
		if span.Len() < minBlockBytes || left < minUntouched && !t.partial[span] {
			return
		}
		partial[span] = true
		blocks = append(blocks, growth.Block{
			Start: span.Start, Bytes: int64(span.Len()), Touched: touched, IsObject: isObject,
		})
	}

	for i := range rows.Segments {
		segment := &rows.Segments[i]
		if segment.isBlock(rows.HeapTraced) {
			add(segment.Span(), rows.Bytes(segment), segment.Class == region.MmappedChunk)
		}
	}
	for _, chunk := range t.older {
		if segment := rows.segmentAt(chunk.Start); segment != nil && segment.Region.End >= chunk.End {
			bytes := rows.runs.BytesIn(chunk.Start, chunk.End)
			add(chunk, bytes.Scaled(segment.factor, segment.fileFactor), true)
		}
	}

	slices.SortFunc(blocks, func(a, b growth.Block) int {
		return cmp.Or(cmp.Compare(b.Bytes-b.Touched, a.Bytes-a.Touched), cmp.Compare(b.Bytes, a.Bytes),
			cmp.Compare(a.Start, b.Start))
	})
	t.partial = partial
	return blocks[:min(maxBlocks, len(blocks))]
}

// isBlock reports whether a segment is one object of malloc, or a mapping whose size is known, and
// that no allocator fills with objects.
func (s *Segment) isBlock(heapTraced bool) bool {
	if !s.HasInterval || s.Origin == addrspace.Unobserved {
		return false
	}
	switch s.Class {
	case region.MmappedChunk, region.Shmem:
		return true
	case region.Anonymous:
		return !s.Heap && !s.ByAllocator && heapTraced
	}
	return false
}
