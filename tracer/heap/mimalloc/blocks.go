package mimalloc

import (
	"fmt"
	"slices"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// blocks implements heap.Blocks.
type blocks struct {
	cookie   uint64
	memory   mem.Reader
	segments map[uint64]bool
	found    map[uint64]*blockPage // by the address of the mi_page_t; nil: it was changing
	delayed  map[uint64][]uint64   // by the address of the mi_heap_t
	offsets  []uint64              // of the first block in a page of small ones; one is left

	// last is the page that was found last; nil: none. Most addresses come in order, and to read
	// its place in the segment for each block takes two switches of processes.
	last *blockPage
}

// firstBlocks are the offsets of the first block in a page of blocks of up to 1,024 bytes, which
// begins at no OS page: 3 * MI_MAX_ALIGN_GUARANTEE in 2.0.9, MI_MAX_ALIGN_GUARANTEE in older ones.
//
// https://github.com/microsoft/mimalloc/blob/v2.0.9/src/segment.c (_mi_segment_page_start_from_slice)
var firstBlocks = []uint64{3 * 128, 128}

const (
	maxOffsetBlock  = 1024
	maxLearnedPages = 256     // whose free blocks are compared
	maxTriedPages   = 1 << 14 // that are read for them
	maxKeptPages    = 1 << 12 // with their free blocks: some MiB
)

// Blocks implements heap.BlockFinder.
func (m *Malloc) Blocks(memory mem.Reader, maps []process.Mapping) (heap.Blocks, error) {
	b := &blocks{
		cookie: m.cookie, memory: memory, segments: make(map[uint64]bool),
		found: make(map[uint64]*blockPage), delayed: make(map[uint64][]uint64),
		offsets: firstBlocks,
	}
	if err := b.learnOffset(maps); err != nil {
		return nil, err
	}
	return b, nil
}

// A blockPage is a page with its free blocks, sorted.
type blockPage struct {
	page
	first   uint64 // address of the first block
	blocks  []uint64
	delayed []uint64
}

// At implements heap.Blocks.
func (b *blocks) At(address uint64) (block mem.Span, isLive bool) {
	if address >= heap.MaxAddress {
		return mem.Span{}, false
	}
	p := b.pageOf(address)
	if p == nil || address < p.first || address >= p.End {
		return mem.Span{}, false
	}
	return p.blockAt(address)
}

// pageOf returns the page that an address is in; nil: there is none with blocks.
func (b *blocks) pageOf(address uint64) *blockPage {
	if b.last != nil && b.last.contains(address) {
		return b.last
	}
	segment := address &^ (segmentBytes - 1)
	if segment == 0 || !b.isSegment(segment) {
		return nil
	}
	entry := segment + slicesOffset + (address-segment)/sliceBytes*pageBytes
	content, err := mem.PeekOne(b.memory, entry, 8)
	if err != nil || content == nil {
		return nil
	}
	offset := mem.Word(content, 0) >> 32 // slice_offset
	if offset%pageBytes != 0 || offset > entry-segment-slicesOffset {
		return nil
	}
	b.last = b.page(entry - offset)
	return b.last
}

// FreeAt implements heap.Blocks. It reads the page again.
func (b *blocks) FreeAt(address uint64) (block mem.Span, isFree bool) {
	b.last = nil
	clear(b.found)
	clear(b.delayed)
	p := b.pageOf(address)
	if p == nil || address < p.first || address >= p.End {
		return mem.Span{}, false
	}
	block, isLive := p.blockAt(address)
	return block, !isLive
}

// IsOwn implements heap.Blocks: mimalloc finds the page of a block by its address.
func (b *blocks) IsOwn(uint64, mem.Span) bool { return false }

// Small implements heap.Blocks.
func (b *blocks) Small(mem.Spans, uint64) (mem.Spans, []mem.Span, error) {
	return nil, nil, nil
}

// Next implements heap.Blocks.
func (b *blocks) Next(address, before uint64) (block mem.Span, ok bool) {
	for before = min(before, heap.MaxAddress); address < before; {
		end := address&^(sliceBytes-1) + sliceBytes
		p := b.pageOf(address)
		if p == nil || p.End <= address {
			address = end
			continue
		}

		for at := max(address, p.first); at < min(p.End, before); {
			block, isLive := p.blockAt(at)
			if block.Start >= address && block.Start < before && isLive {
				return block, true
			}
			at = block.End
		}
		address = max(end, p.End)
	}

	return mem.Span{}, false
}

// blockAt returns the block of a page at an address, and whether it is in use.
func (p *blockPage) blockAt(address uint64) (block mem.Span, isLive bool) {
	if p.Len() > mediumPage || p.blockSize >= hugeBlock {
		return p.Span, p.used != 0 && !isIn(p.delayed, p.Start)
	}
	index := (address - p.first) / p.blockSize
	start := p.first + index*p.blockSize
	block = mem.Span{Start: start, End: start + p.blockSize}
	isFree := p.used == 0 || index >= p.capacity || block.End > p.End ||
		isIn(p.blocks, start) || isIn(p.delayed, start)
	return block, !isFree
}

func isIn(sorted []uint64, block uint64) bool {
	_, found := slices.BinarySearch(sorted, block)
	return found
}

func (b *blocks) isSegment(segment uint64) bool {
	is, ok := b.segments[segment]
	if !ok {
		cookie, err := mem.PeekOne(b.memory, segment+cookieOffset, 8)
		is = err == nil && cookie != nil && mem.Word(cookie, 0) == segment^b.cookie
		if len(b.segments) >= maxSegments {
			clear(b.segments)
		}
		b.segments[segment] = is
	}
	return is
}

// page returns the page of a mi_page_t; nil: it has no blocks, or was changing.
func (b *blocks) page(address uint64) *blockPage {
	p, ok := b.found[address]
	if ok {
		return p
	}
	const attempts = 3
	for range attempts {
		var err error
		if p, err = b.readPage(address); p != nil || err != nil {
			break
		}
	}

	if len(b.found) >= maxKeptPages {
		clear(b.found)
	}
	b.found[address] = p
	return p
}

func (b *blocks) readPage(address uint64) (*blockPage, error) {
	found, err := readPages(b.memory, []uint64{address})
	if err != nil {
		return nil, err
	}
	p := &blockPage{page: found[address]}
	if p.blockSize < 8 || p.Len() == 0 {
		return nil, nil
	}
	free, err := freeBlocks(b.memory, found)
	if err != nil {
		return nil, err
	}
	delayed, ok := b.delayed[p.heap]
	if !ok {
		if delayed, err = delayedBlocks(b.memory, found); err != nil {
			return nil, err
		}
		b.delayed[p.heap] = delayed
	}
	again, err := readPages(b.memory, []uint64{address})
	if err != nil || again[address] != p.page {
		return nil, err
	}

	p.first, p.blocks, p.delayed = p.Start, free[address], delayed
	if p.blockSize <= maxOffsetBlock {
		p.first += b.offsets[0]
	}
	if !p.beginsAt(p.first) {
		return nil, nil
	}
	return p, nil
}

// beginsAt reports whether all free blocks are where they are if the first block is at an address.
func (p *blockPage) beginsAt(first uint64) bool {
	return !slices.ContainsFunc(p.blocks, func(block uint64) bool {
		return block < first || (block-first)%p.blockSize != 0
	})
}

// learnOffset finds the one of the offsets with which the free blocks of pages agree. The error
// wraps heap.ErrNoBlocks if none does.
func (b *blocks) learnOffset(maps []process.Mapping) error {
	compared, tried, segments := 0, 0, 0
	for _, s := range heap.Spans(maps) {
		for a := mem.AlignUp(s.Start, segmentBytes); a < s.End && segments < maxSegments; {
			segments++
			isSegment := b.isSegment(a)
			for i := uint64(0); i < slicesPerSegment && isSegment && compared < maxLearnedPages &&
				tried < maxTriedPages; i++ {
				tried++
				isCompared, err := b.learnFrom(a + slicesOffset + i*pageBytes)
				if err != nil {
					return err
				}
				if isCompared {
					compared++
				}
			}
			a += segmentBytes
		}
	}

	if len(b.offsets) == 0 {
		return fmt.Errorf("%w of a known version", heap.ErrNoBlocks)
	}
	return nil
}

// learnFrom leaves the offsets with which the free blocks of a page agree, and returns whether it
// has any such blocks.
func (b *blocks) learnFrom(address uint64) (isCompared bool, err error) {
	found, err := readPages(b.memory, []uint64{address})
	if err != nil {
		return false, err
	}
	p := blockPage{page: found[address]}
	if p.blockSize < 8 || p.blockSize > maxOffsetBlock || p.Len() == 0 ||
		!slices.ContainsFunc(p.free[:], p.contains) {
		return false, nil
	}
	free, err := freeBlocks(b.memory, found)
	if err != nil {
		return false, err
	}
	again, err := readPages(b.memory, []uint64{address})
	if err != nil || again[address] != p.page {
		return true, err
	}

	p.blocks = free[address]
	b.offsets = slices.DeleteFunc(slices.Clone(b.offsets), func(offset uint64) bool {
		return !p.beginsAt(p.Start + offset)
	})
	return true, nil
}
