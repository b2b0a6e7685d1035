package jemalloc

import (
	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

const pageBytes = 1 << pageBits

// Bounds on the pages and extents that are kept, each of a few MiB.
const (
	maxKeptElements = 1 << 11 // pages
	maxKeptExtents  = 1 << 15
	maxExtentPages  = 1 << 16 // of an extent, up to its first page
	elementsAtOnce  = 64      // of the tree, in one piece
	piecesAtOnce    = 1 << 12
)

// blocks implements heap.Blocks.
type blocks struct {
	root     uint64
	memory   mem.Reader
	cached   map[uint64]bool            // objects in thread caches
	stacks   mem.Spans                  // of the thread caches
	elements map[uint64][]byte          // pages of the tree, by address
	extents  map[leafElement]extentData // size 0: none
	last     mem.Span
}

// Blocks implements heap.BlockFinder.
func (j *Malloc) Blocks(memory mem.Reader, _ []process.Mapping) (heap.Blocks, error) {
	cached, stacks, err := j.cachedObjects(memory)
	if err != nil {
		return nil, err
	}
	return &blocks{
		root: j.root, memory: memory, cached: cached, stacks: stacks,
		elements: make(map[uint64][]byte), extents: make(map[leafElement]extentData),
	}, nil
}

// At implements heap.Blocks.
func (b *blocks) At(address uint64) (block mem.Span, isLive bool) {
	if b.last.Start <= address && address < b.last.End {
		return b.last, true
	}
	block, isUsed := b.extentAt(address).blockAt(address)
	isLive = isUsed && !b.cached[block.Start]
	if isLive {
		b.last = block
	}
	return block, isLive
}

// FreeAt implements heap.Blocks. It reads the tree again.
func (b *blocks) FreeAt(address uint64) (block mem.Span, isFree bool) {
	clear(b.elements)
	clear(b.extents)
	b.last = mem.Span{}

	e := b.extentAt(address)
	switch {
	case e.size == 0 || e.state > retained:
		return mem.Span{}, false
	case e.state != active:
		return e.pages(), true
	}
	block, isUsed := e.blockAt(address)
	return block, e.isSlab && !isUsed && block.Len() > 0
}

// extentAt returns the extent that an address is in; one of size 0: there is none. The tree has the
// first and the last page of an extent, and all pages of a slab.
func (b *blocks) extentAt(address uint64) extentData {
	if address >= maxAddress {
		return extentData{}
	}
	page := address &^ (pageBytes - 1)
	for back := uint64(0); back < maxExtentPages && back<<pageBits <= page; back++ {
		element, ok := b.element(page - back<<pageBits)
		if !ok {
			return extentData{}
		}
		if element.edata() == 0 {
			continue
		}
		if extent := b.extent(element); extent.contains(page) {
			return extent
		}
		return extentData{}
	}
	return extentData{}
}

// IsOwn implements heap.Blocks. The extent of a block has its address, and a thread cache leaves
// the addresses in its stacks of the blocks that it has handed out.
func (b *blocks) IsOwn(at uint64, block mem.Span) bool {
	if _, isInStack := b.stacks.Find(at); isInStack {
		return true
	}
	element, ok := b.element(block.Start &^ (pageBytes - 1))
	return ok && element.edata() != 0 && at == element.edata()+addrOffset
}

// Next implements heap.Blocks.
func (b *blocks) Next(address, before uint64) (block mem.Span, ok bool) {
	for before = min(before, maxAddress); address < before; {
		page := address &^ (pageBytes - 1)
		element, _ := b.element(page)
		var extent extentData
		if element.edata() != 0 {
			extent = b.extent(element)
		}
		if extent.size == 0 || !extent.contains(page) {
			address = page + pageBytes
			continue
		}

		end := extent.address&^(pageBytes-1) + extent.size
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
		address = max(end, page+pageBytes)
	}
	return mem.Span{}, false
}

// Small implements heap.Blocks. It reads the tree again, and keeps none of it: there may be many ranges.
func (b *blocks) Small(
	ranges mem.Spans, most uint64,
) (slabs mem.Spans, extents []mem.Span, err error) {
	const step = elementsAtOnce * pageBytes
	var near []mem.Span // whole pieces, with the starts of the extents that reach into a range
	for _, r := range ranges {
		near = append(near, mem.Span{
			Start: (r.Start - min(r.Start, most)) &^ (step - 1),
			End:   mem.AlignUp(min(r.End, maxAddress), step),
		})
	}

	var pieces, addresses []uint64
	for _, r := range mem.MergeSpans(near) {
		for at := r.Start; at < r.End; at += step {
			leaf, ok := b.wordOfTree(b.root + 8*(at>>leafShift&levelMask))
			if ok && leaf != 0 && leaf%8 == 0 && leaf < maxAddress {
				pieces = append(pieces, at)
				addresses = append(addresses, leaf+8*(at>>pageBits&levelMask))
			}
		}
	}

	found := smallBlocks{most: most}
	for n := 0; len(pieces) > 0; pieces, addresses = pieces[n:], addresses[n:] {
		n = min(len(pieces), piecesAtOnce)
		contents, err := b.memory.Peek(addresses[:n], 8*elementsAtOnce)
		if err != nil {
			return nil, nil, err
		}

		for i, content := range contents {
			for at := 0; at < len(content); at += 8 {
				found.add(pieces[i]+uint64(at)/8*pageBytes, leafElement(mem.Word(content, at)))
			}
		}
	}
	return mem.MergeSpans(found.slabs), found.extents, nil
}

// smallBlocks collects the memory of small blocks.
type smallBlocks struct {
	most    uint64
	slabs   []mem.Span
	extents []mem.Span
}

// add adds a page with its element. Of a large extent, the first page has the size class, and the
// last one has none (emap_remap). The block begins within the first page, and the extent is a page
// longer for it (sz_large_pad).
func (s *smallBlocks) add(page uint64, e leafElement) {
	switch {
	case e.edata() == 0 || e.state() != active || e.szind() >= uint64(len(heap.SizeClasses)):
	case e.isSlab():
		s.slabs = append(s.slabs, mem.Span{Start: page, End: page + pageBytes})
	case heap.SizeClasses[e.szind()] <= s.most:
		end := page + mem.AlignUp(heap.SizeClasses[e.szind()], pageBytes) + pageBytes
		s.extents = append(s.extents, mem.Span{Start: page, End: end})
	}
}

// element returns the leaf element of a page. It returns false if the element cannot be read.
func (b *blocks) element(page uint64) (leafElement, bool) {
	leaf, ok := b.wordOfTree(b.root + 8*(page>>leafShift&levelMask))
	if !ok || leaf == 0 || leaf%8 != 0 || leaf >= maxAddress {
		return 0, ok && leaf == 0
	}
	element, ok := b.wordOfTree(leaf + 8*(page>>pageBits&levelMask))
	return leafElement(element), ok
}

func (b *blocks) wordOfTree(address uint64) (uint64, bool) {
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
func (b *blocks) extent(element leafElement) extentData {
	extent, ok := b.extents[element]
	if ok {
		return extent
	}
	content, err := mem.PeekOne(b.memory, element.edata(), edataBytes)
	if extent, ok = extentOf(content, element); !ok || err != nil {
		extent = extentData{}
	}
	if len(b.extents) >= maxKeptExtents {
		clear(b.extents)
	}
	b.extents[element] = extent
	return extent
}

// blockAt returns the block of an extent at an address, and whether it is in use or in a thread
// cache.
func (e extentData) blockAt(address uint64) (block mem.Span, isUsed bool) {
	if e.state != active || e.szind >= uint64(len(heap.SizeClasses)) || address < e.address {
		return mem.Span{}, false
	}
	size := heap.SizeClasses[e.szind]
	if !e.isSlab {
		block = mem.Span{Start: e.address, End: min(e.address+size, e.pages().End)}
		return block, address < block.End
	}

	region := (address - e.address) / size
	if region >= maxRegions || (region+1)*size > e.size {
		return mem.Span{}, false
	}
	start := e.address + region*size
	return mem.Span{Start: start, End: start + size}, e.bitmap[region/8]>>(region%8)&1 == 0
}
