package caching

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mem"
)

// A layout is where a Block has its fields, in bytes from its start. All versions since 1.13 have
// the same order; the fields before ptr have other sizes by version.
type layout struct {
	ptr           uint64
	hasRequested  bool // requested_size, since 2.1
	hasMappedFlag bool // mapped, since 2.1
}

// sizeAt is the offset of the size.
func (l *layout) sizeAt() uint64 {
	if l.hasRequested {
		return l.ptr - 3*8
	}

	return l.ptr - 2*8
}

// Offsets of the fields behind ptr, from it.
const (
	allocatedAt = 8
	mappedAt    = 9
	prevAt      = 16
	nextAt      = 24
	eventsAt    = 32 // event_count
)

// bytes of a Block that are read.
func (l *layout) bytes() int { return int(l.ptr + eventsAt + 8) }

// block returns the fields of a Block.
func (l *layout) block(self uint64, content []byte) block {
	b := block{
		self: self, device: content[0], stream: mem.Word(content, 8),
		size: mem.Word(content, l.sizeAt()), requested: mem.Word(content, l.ptr-2*8),
		pool: mem.Word(content, l.ptr-8), address: mem.Word(content, l.ptr),
		isAllocated: content[l.ptr+allocatedAt] == 1,
		isMapped:    !l.hasMappedFlag || content[l.ptr+mappedAt] == 1,
		hasEvents:   int32(mem.Word32(content, l.ptr+eventsAt)) > 0,
		prev:        mem.Word(content, l.ptr+prevAt), next: mem.Word(content, l.ptr+nextAt),
	}

	if !l.hasRequested || b.requested > b.size {
		unknown := int64(growth.Unknown)
		b.requested = uint64(unknown)
	}

	return b
}

// A finder finds the tables of allocated blocks in the library's variables, and the layout of the
// blocks. It keeps both.
type finder struct {
	memory *limited
	layout *layout  // nil: not known
	tables mem.Span // in the variables; empty: not known
}

// findAllocated returns the addresses of the allocated Blocks. It seeks their tables where they were
// the last time, then in all of the library's variables, and finds the layout of the blocks. It
// tries twice: a table may have grown meanwhile.
func (f *finder) findAllocated(variables mem.Spans) (blocks []uint64, err error) {
	for _, within := range []mem.Spans{variables.Within(f.tables), variables, variables} {
		found, err := f.candidatesIn(within)
		if err != nil {
			return nil, err
		}

		if blocks, err = f.choose(found); err != nil || len(blocks) != 0 {
			return blocks, err
		}
	}

	return nil, nil
}

// A candidate may be a table of allocated blocks: its entries lead to structures with the address
// of the entry at offset ptr.
type candidate struct {
	address uint64
	blocks  []uint64
	ptr     uint64
	fitting int // of the entries that were checked
}

// candidatesIn returns the candidates in some variables.
func (f *finder) candidatesIn(variables mem.Spans) (found []candidate, err error) {
	for _, span := range variables {
		content, err := mem.ReadRange(f.memory, span)
		if err != nil {
			return nil, err
		}

		tables, err := f.memory.tablesIn(content, blockEntry)
		if err != nil {
			return nil, err
		}

		values, err := f.memory.values(tables)
		if err != nil {
			return nil, err
		}

		pairs := make([][]pair, len(tables))
		for i := range tables {
			pairs[i] = pairsOf(values[i])
		}

		fits, err := f.fits(pairs)
		if err != nil {
			return nil, err
		}

		for i, c := range fits {
			if c.fitting > 0 {
				c.address = span.Start + uint64(tables[i].offset)
				found = append(found, c)
			}
		}
	}

	return found, nil
}

const (
	sampledBlocks = 64 // of a table are checked
	minFitShare   = 0.1
	firstPtr      = 40 // the first offset at which ptr may be
	lastPtr       = 112
)

// fits returns a candidate for the pairs of each table. Those that do not fit are without blocks.
func (f *finder) fits(tables [][]pair) ([]candidate, error) {
	var addresses []uint64
	for _, pairs := range tables {
		for _, p := range pairs[:min(len(pairs), sampledBlocks)] {
			addresses = append(addresses, p.block)
		}
	}

	contents, err := f.memory.Peek(addresses, lastPtr+eventsAt+8)
	if err != nil {
		return nil, err
	}

	n := 0 // blocks
	candidates := make([]candidate, len(tables))
	for i, pairs := range tables {
		sampled := min(len(pairs), sampledBlocks)
		c := &candidates[i]
		c.ptr, c.fitting = fit(pairs, contents[:sampled])
		contents = contents[sampled:]
		if c.fitting == 0 {
			continue
		}
		if n += len(pairs); n > maxBlocks {
			return nil, errTooMany
		}
		for _, p := range pairs {
			c.blocks = append(c.blocks, p.block)
		}
	}

	return candidates, nil
}

// fit returns the offset at which most of the blocks that were read have the addresses of their
// entries, and how many have them; 0: too few, even if most change meanwhile.
func fit(pairs []pair, contents [][]byte) (ptr uint64, fitting int) {
	for at := uint64(firstPtr); at <= lastPtr; at += 8 {
		n := 0
		for i, content := range contents {
			if content != nil && mem.Word(content, at) == pairs[i].address &&
				content[at+allocatedAt] == 1 {
				n++
			}
		}
		if n > fitting && float64(n) >= minFitShare*float64(len(contents)) {
			ptr, fitting = at, n
		}
	}

	return ptr, fitting
}

// choose returns the blocks of the candidates whose ptr has the offset that most blocks have, and
// keeps where they are. It learns the layout if it is another one.
func (f *finder) choose(candidates []candidate) (blocks []uint64, err error) {
	fitting := make(map[uint64]int)
	for _, c := range candidates {
		fitting[c.ptr] += c.fitting
	}

	ptr := uint64(0)
	for at, n := range fitting {
		if n > fitting[ptr] || n == fitting[ptr] && at < ptr {
			ptr = at
		}
	}

	var tables mem.Span
	for _, c := range candidates {
		if c.ptr != ptr {
			continue
		}
		blocks = append(blocks, c.blocks...)
		if tables.End == 0 {
			tables.Start = c.address
		}
		tables.End = c.address + tableBytes
	}

	if len(blocks) == 0 {
		return nil, nil
	}

	if f.layout == nil || f.layout.ptr != ptr {
		if f.layout, err = f.layoutWith(ptr, blocks); f.layout == nil {
			return nil, err
		}
	}

	// Shards that are empty now may be before and behind.
	const others = (mutexShards - 1) * tableBytes
	f.tables = mem.Span{Start: tables.Start - min(others, tables.Start), End: tables.End + others}
	return blocks, nil
}

// layoutWith returns the layout with ptr at an offset that makes most blocks adjoin their
// neighbours; nil: none does.
func (f *finder) layoutWith(ptr uint64, addresses []uint64) (*layout, error) {
	addresses = addresses[:min(len(addresses), sampledBlocks)]
	var best *layout
	most := 0
	for _, l := range []*layout{{ptr, true, true}, {ptr, false, false}} {
		n, err := f.adjoining(l, addresses)
		if err != nil {
			return nil, err
		}
		if n > most {
			best, most = l, n
		}
	}

	return best, nil
}

// adjoining returns how many blocks end where the next one begins, or are the last.
func (f *finder) adjoining(l *layout, addresses []uint64) (n int, err error) {
	contents, err := f.memory.Peek(addresses, l.bytes())
	if err != nil {
		return 0, err
	}

	var blocks []block
	var neighbours []uint64
	for i, content := range contents {
		if content == nil {
			continue
		}
		if b := l.block(addresses[i], content); b.isPossible() && b.address%blockUnit == 0 {
			blocks = append(blocks, b)
			neighbours = append(neighbours, b.next)
		}
	}

	contents, err = f.memory.Peek(neighbours, l.bytes())
	if err != nil {
		return 0, err
	}

	for i, b := range blocks {
		isLast := b.next == 0 && l.hasRequested == (b.requested <= b.size)
		if isLast || contents[i] != nil && l.block(b.next, contents[i]).address == b.address+b.size {
			n++
		}
	}

	return n, nil
}
