package liveness

import (
	"errors"
	"fmt"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// Blocks finds the blocks of jemalloc or mimalloc that addresses are in. For glibc's there is
// Heaps. It is not safe for concurrent use.
type Blocks interface {
	// At returns the block that the program has at an address. isLive is false if the block is
	// free, is of another allocator, or was changing. The answer is of the moment when the
	// address, or one near it, was first asked for.
	At(address uint64) (block mem.Span, isLive bool)
	// Next returns the first live block that begins at an address or behind it, and before
	// another one. ok is false if there is none.
	Next(address, before uint64) (block mem.Span, ok bool)
	// Small returns the memory near some ranges that jemalloc has in blocks of at most a size, free
	// ones too: its slabs, and the extents that are a block. Both are nil for mimalloc.
	Small(ranges mem.Spans, most uint64) (slabs mem.Spans, extents []mem.Span, err error)
}

// ErrNoBlocks means that the blocks of a malloc cannot be found by address.
var ErrNoBlocks = errors.New("malloc is neither jemalloc nor mimalloc")

// Blocks reads the free lists of the allocator, for the blocks of now. The error wraps
// ErrNoBlocks, or is that of memory.
func (a ProcessAllocator) Blocks(p *process.Process, maps []process.Mapping) (Blocks, error) {
	memory, err := newPrivateMemory(p, maps)
	if err != nil {
		return nil, err
	}
	switch malloc := a.Allocator.(type) {
	case *jemalloc:
		return malloc.blocks(memory)
	case *mimalloc:
		return malloc.blocks(memory, maps)
	}
	return nil, errors.Join(a.err, ErrNoBlocks)
}

const jePageBytes = 1 << jePageBits

// Bounds on what is kept, each of a few MiB.
const (
	maxKeptElements = 1 << 11 // pages
	maxKeptExtents  = 1 << 15
	maxKeptPages    = 1 << 12
	maxExtentPages  = 1 << 16 // of an extent, up to its first page
	elementsAtOnce  = 64      // of the tree, in one piece
	piecesAtOnce    = 1 << 12
)

// jeBlocks implements Blocks.
type jeBlocks struct {
	root     uint64
	memory   mem.Reader
	cached   map[uint64]bool        // objects in thread caches
	elements map[uint64][]byte      // pages of the tree, by address
	extents  map[jeElement]jeExtent // size 0: none
	last     mem.Span
}

func (j *jemalloc) blocks(memory mem.Reader) (Blocks, error) {
	cached, err := j.cachedObjects(memory)
	if err != nil {
		return nil, err
	}
	return &jeBlocks{
		root: j.root, memory: memory, cached: cached,
		elements: make(map[uint64][]byte), extents: make(map[jeElement]jeExtent),
	}, nil
}

// At implements Blocks. The tree has the first and the last page of an extent, and all those of a
// slab.
func (b *jeBlocks) At(address uint64) (block mem.Span, isLive bool) {
	if b.last.Start <= address && address < b.last.End {
		return b.last, true
	}
	if address >= jeMaxAddress {
		return mem.Span{}, false
	}

	page := address &^ (jePageBytes - 1)
	for back := uint64(0); back < maxExtentPages && back<<jePageBits <= page; back++ {
		element, ok := b.element(page - back<<jePageBits)
		if !ok {
			return mem.Span{}, false
		}
		if element.edata() == 0 {
			continue
		}
		extent := b.extent(element)
		if extent.size == 0 || !extent.contains(page) {
			return mem.Span{}, false
		}
		block, isLive = extent.blockAt(address)
		isLive = isLive && !b.cached[block.Start]
		if isLive {
			b.last = block
		}
		return block, isLive
	}
	return mem.Span{}, false
}

// Next implements Blocks.
func (b *jeBlocks) Next(address, before uint64) (block mem.Span, ok bool) {
	for before = min(before, jeMaxAddress); address < before; {
		page := address &^ (jePageBytes - 1)
		element, _ := b.element(page)
		var extent jeExtent
		if element.edata() != 0 {
			extent = b.extent(element)
		}
		if extent.size == 0 || !extent.contains(page) {
			address = page + jePageBytes
			continue
		}

		end := extent.address&^(jePageBytes-1) + extent.size
		for at := max(address, extent.address); at < min(end, before); {
			block, isUsed := extent.blockAt(at)
			if block.End <= at { // behind the last one
				break
			}
			if block.Start >= address && block.Start < before && isUsed && !b.cached[block.Start] {
				return block, true
			}
			at = block.End
		}
		address = max(end, page+jePageBytes)
	}
	return mem.Span{}, false
}

// Small implements Blocks. It reads the tree again, and keeps none of it: there may be many ranges.
func (b *jeBlocks) Small(
	ranges mem.Spans, most uint64,
) (slabs mem.Spans, extents []mem.Span, err error) {
	const step = elementsAtOnce * jePageBytes
	var near []mem.Span // whole pieces, with the starts of the extents that reach into a range
	for _, r := range ranges {
		near = append(near, mem.Span{
			Start: (r.Start - min(r.Start, most)) &^ (step - 1),
			End:   mem.AlignUp(min(r.End, jeMaxAddress), step),
		})
	}

	var pieces, addresses []uint64
	for _, r := range mem.MergeSpans(near) {
		for at := r.Start; at < r.End; at += step {
			leaf, ok := b.wordOfTree(b.root + 8*(at>>jeLeafShift&jeLevelMask))
			if ok && leaf != 0 && leaf%8 == 0 && leaf < jeMaxAddress {
				pieces = append(pieces, at)
				addresses = append(addresses, leaf+8*(at>>jePageBits&jeLevelMask))
			}
		}
	}

	found := jeSmall{most: most}
	for n := 0; len(pieces) > 0; pieces, addresses = pieces[n:], addresses[n:] {
		n = min(len(pieces), piecesAtOnce)
		contents, err := b.memory.Peek(addresses[:n], 8*elementsAtOnce)
		if err != nil {
			return nil, nil, err
		}

		for i, content := range contents {
			for at := 0; at < len(content); at += 8 {
				found.add(pieces[i]+uint64(at)/8*jePageBytes, jeElement(mem.Word(content, at)))
			}
		}
	}
	return mem.MergeSpans(found.slabs), found.extents, nil
}

// jeSmall collects the memory of small blocks.
type jeSmall struct {
	most    uint64
	slabs   []mem.Span
	extents []mem.Span
}

// add adds a page with its element. Of a large extent, the first page has the size class, and the
// last one has none (emap_remap). The block begins within the first page, and the extent is a page
// longer for it (sz_large_pad).
func (s *jeSmall) add(page uint64, e jeElement) {
	const active = 0
	switch {
	case e.edata() == 0 || e.state() != active || e.szind() >= uint64(len(jeSizes)):
	case e.isSlab():
		s.slabs = append(s.slabs, mem.Span{Start: page, End: page + jePageBytes})
	case jeSizes[e.szind()] <= s.most:
		end := page + mem.AlignUp(jeSizes[e.szind()], jePageBytes) + jePageBytes
		s.extents = append(s.extents, mem.Span{Start: page, End: end})
	}
}

// element returns the leaf element of a page. It returns false if that cannot be read.
func (b *jeBlocks) element(page uint64) (jeElement, bool) {
	leaf, ok := b.wordOfTree(b.root + 8*(page>>jeLeafShift&jeLevelMask))
	if !ok || leaf == 0 || leaf%8 != 0 || leaf >= jeMaxAddress {
		return 0, ok && leaf == 0
	}
	element, ok := b.wordOfTree(leaf + 8*(page>>jePageBits&jeLevelMask))
	return jeElement(element), ok
}

func (b *jeBlocks) wordOfTree(address uint64) (uint64, bool) {
	start := address &^ (mem.PeekSize - 1)
	content, ok := b.elements[start]
	if !ok {
		var err error
		if content, err = mem.PeekOne(b.memory, start, mem.PeekSize); err != nil {
			return 0, false
		}
		if len(b.elements) >= maxKeptElements {
			clear(b.elements)
		}
		b.elements[start] = content
	}
	if content == nil {
		return 0, false
	}
	return mem.Word(content, int(address-start)), true
}

// extent returns the extent of an element, one of size 0 if there is none.
func (b *jeBlocks) extent(element jeElement) jeExtent {
	extent, ok := b.extents[element]
	if ok {
		return extent
	}
	content, err := mem.PeekOne(b.memory, element.edata(), jeExtentBytes)
	if extent, ok = extentOf(content, element); !ok || err != nil {
		extent = jeExtent{}
	}
	if len(b.extents) >= maxKeptExtents {
		clear(b.extents)
	}
	b.extents[element] = extent
	return extent
}

// blockAt returns the block of an extent at an address, and whether it is in use or in a thread
// cache.
func (e jeExtent) blockAt(address uint64) (block mem.Span, isUsed bool) {
	if e.state != 0 || e.szind >= uint64(len(jeSizes)) || address < e.address {
		return mem.Span{}, false
	}
	size := jeSizes[e.szind]
	if !e.isSlab {
		block = mem.Span{Start: e.address, End: e.address + size}
		return block, address < block.End
	}

	region := (address - e.address) / size
	if region >= jeMaxRegions || (region+1)*size > e.size {
		return mem.Span{}, false
	}
	start := e.address + region*size
	return mem.Span{Start: start, End: start + size}, e.bitmap[region/8]>>(region%8)&1 == 0
}

// miBlocks implements Blocks.
type miBlocks struct {
	cookie   uint64
	memory   mem.Reader
	segments map[uint64]bool
	found    map[uint64]*miBlockPage // by the address of the mi_page_t; nil: it was changing
	delayed  map[uint64][]uint64     // by the address of the mi_heap_t
	offsets  []uint64                // of the first block in a page of small ones; one is left
}

// miFirstBlocks are the offsets of the first block in a page of blocks of up to 1,024 bytes, which
// begins at no OS page: 3 * MI_MAX_ALIGN_GUARANTEE in 2.0.9, MI_MAX_ALIGN_GUARANTEE in older ones.
//
// https://github.com/microsoft/mimalloc/blob/v2.0.9/src/segment.c (_mi_segment_page_start_from_slice)
var miFirstBlocks = []uint64{3 * 128, 128}

const (
	miMaxOffsetBlock = 1024
	maxLearnedPages  = 256     // whose free blocks are compared
	maxTriedPages    = 1 << 14 // that are read for them
)

func (m *mimalloc) blocks(memory mem.Reader, maps []process.Mapping) (Blocks, error) {
	b := &miBlocks{
		cookie: m.cookie, memory: memory, segments: make(map[uint64]bool),
		found: make(map[uint64]*miBlockPage), delayed: make(map[uint64][]uint64),
		offsets: miFirstBlocks,
	}
	if err := b.learnOffset(maps); err != nil {
		return nil, err
	}
	return b, nil
}

// A miBlockPage is a page with its free blocks, sorted.
type miBlockPage struct {
	miPage
	first   uint64 // address of the first block
	blocks  []uint64
	delayed []uint64
}

// At implements Blocks.
func (b *miBlocks) At(address uint64) (block mem.Span, isLive bool) {
	if address >= maxAddress {
		return mem.Span{}, false
	}
	p := b.pageOf(address)
	if p == nil || address < p.first || address >= p.End {
		return mem.Span{}, false
	}
	return p.blockAt(address)
}

// pageOf returns the page that an address is in; nil: there is none with blocks in use.
func (b *miBlocks) pageOf(address uint64) *miBlockPage {
	segment := address &^ (miSegmentBytes - 1)
	if segment == 0 || !b.isSegment(segment) {
		return nil
	}
	entry := segment + miSlicesStart + (address-segment)/miSliceBytes*miPageBytes
	content, err := mem.PeekOne(b.memory, entry, 8)
	if err != nil || content == nil {
		return nil
	}
	offset := mem.Word(content, 0) >> 32 // slice_offset
	if offset%miPageBytes != 0 || offset > entry-segment-miSlicesStart {
		return nil
	}
	if p := b.page(entry - offset); p != nil && p.used != 0 {
		return p
	}
	return nil
}

// Small implements Blocks.
func (b *miBlocks) Small(mem.Spans, uint64) (mem.Spans, []mem.Span, error) {
	return nil, nil, nil
}

// Next implements Blocks.
func (b *miBlocks) Next(address, before uint64) (block mem.Span, ok bool) {
	for before = min(before, maxAddress); address < before; {
		end := address&^(miSliceBytes-1) + miSliceBytes
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
func (p *miBlockPage) blockAt(address uint64) (block mem.Span, isLive bool) {
	if p.Len() > miMediumPage || p.blockSize >= miHugeBlock {
		return p.Span, !isIn(p.delayed, p.Start)
	}
	index := (address - p.first) / p.blockSize
	start := p.first + index*p.blockSize
	block = mem.Span{Start: start, End: start + p.blockSize}
	isFree := index >= p.capacity || block.End > p.End ||
		isIn(p.blocks, start) || isIn(p.delayed, start)
	return block, !isFree
}

func isIn(sorted []uint64, block uint64) bool {
	_, found := slices.BinarySearch(sorted, block)
	return found
}

func (b *miBlocks) isSegment(segment uint64) bool {
	is, ok := b.segments[segment]
	if !ok {
		cookie, err := mem.PeekOne(b.memory, segment+miCookie, 8)
		is = err == nil && cookie != nil && mem.Word(cookie, 0) == segment^b.cookie
		if len(b.segments) >= maxSegments {
			clear(b.segments)
		}
		b.segments[segment] = is
	}
	return is
}

// page returns the page of a mi_page_t; nil: it has no blocks, or was changing.
func (b *miBlocks) page(address uint64) *miBlockPage {
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

func (b *miBlocks) readPage(address uint64) (*miBlockPage, error) {
	found, err := readPages(b.memory, []uint64{address})
	if err != nil {
		return nil, err
	}
	p := &miBlockPage{miPage: found[address]}
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
	if err != nil || again[address] != p.miPage {
		return nil, err
	}

	p.first, p.blocks, p.delayed = p.Start, free[address], delayed
	if p.blockSize <= miMaxOffsetBlock {
		p.first += b.offsets[0]
	}
	if !p.beginsAt(p.first) {
		return nil, nil
	}
	return p, nil
}

// beginsAt reports whether all free blocks are where they are if the first block is at an address.
func (p *miBlockPage) beginsAt(first uint64) bool {
	return !slices.ContainsFunc(p.blocks, func(block uint64) bool {
		return block < first || (block-first)%p.blockSize != 0
	})
}

// learnOffset finds the one of the offsets with which the free blocks of pages agree. The error
// wraps ErrNoBlocks if none does.
func (b *miBlocks) learnOffset(maps []process.Mapping) error {
	compared, tried, segments := 0, 0, 0
	for _, s := range heapSpans(maps) {
		for a := mem.AlignUp(s.Start, miSegmentBytes); a < s.End && segments < maxSegments; {
			segments++
			isSegment := b.isSegment(a)
			for i := uint64(0); i < miSlices && isSegment && compared < maxLearnedPages &&
				tried < maxTriedPages; i++ {
				tried++
				isCompared, err := b.learnFrom(a + miSlicesStart + i*miPageBytes)
				if err != nil {
					return err
				}
				if isCompared {
					compared++
				}
			}
			a += miSegmentBytes
		}
	}
	if len(b.offsets) == 0 {
		return fmt.Errorf("%w of a known version", ErrNoBlocks)
	}
	return nil
}

// learnFrom leaves the offsets with which the free blocks of a page agree, and returns whether it
// has any such blocks.
func (b *miBlocks) learnFrom(address uint64) (isCompared bool, err error) {
	found, err := readPages(b.memory, []uint64{address})
	if err != nil {
		return false, err
	}
	p := miBlockPage{miPage: found[address]}
	if p.blockSize < 8 || p.blockSize > miMaxOffsetBlock || p.Len() == 0 ||
		!slices.ContainsFunc(p.free[:], p.contains) {
		return false, nil
	}
	free, err := freeBlocks(b.memory, found)
	if err != nil {
		return false, err
	}
	again, err := readPages(b.memory, []uint64{address})
	if err != nil || again[address] != p.miPage {
		return true, err
	}

	p.blocks = free[address]
	b.offsets = slices.DeleteFunc(slices.Clone(b.offsets), func(offset uint64) bool {
		return !p.beginsAt(p.Start + offset)
	})
	return true, nil
}
