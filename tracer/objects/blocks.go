package objects

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A block is what an allocator has handed out at once, and has not got back.
type block struct {
	mem.Span // of the memory that the program has
	kind     blockKind
}

// A blockKind is the allocator of a block.
type blockKind uint8

const (
	blockPool    blockKind = iota // of pymalloc
	blockChunk                    // of a heap of glibc's malloc
	blockMmapped                  // a chunk of glibc's malloc with a mapping of its own
	blockOther                    // of jemalloc or mimalloc
)

// The header of a pool of pymalloc: struct pool_header.
//
// https://github.com/python/cpython/blob/v3.13.0/Include/internal/pycore_obmalloc.h
const (
	poolCount      = 0  // ref.count
	poolFreeblock  = 8  // freeblock
	poolSzidx      = 36 // szidx
	poolNextoffset = 40 // nextoffset
	poolMaxnext    = 44 // maxnextoffset
	poolHeader     = 48 // POOL_OVERHEAD

	poolAlignment = 16 // ALIGNMENT
	maxSzidx      = 32 // NB_SMALL_SIZE_CLASSES
)

// A pool is what was read of one pool of pymalloc. Its header agrees with its blocks.
type pool struct {
	start, blockSize uint64
	end              uint64 // of the blocks that have been handed out at least once
	live             uint64 // blocks
	free             map[uint64]bool
}

// parsePool returns the pool that begins at an address; nil: there is none, or an empty one.
// isChanging is set if it looks like a pool that was changing while it was read.
func parsePool(content []byte, start uint64) (p *pool, isChanging bool) {
	size := uint64(len(content))
	count, szidx := uint64(mem.Word32(content, poolCount)), uint64(mem.Word32(content, poolSzidx))
	nextoffset := uint64(mem.Word32(content, poolNextoffset))
	maxnext := uint64(mem.Word32(content, poolMaxnext))
	blockSize := (szidx + 1) * poolAlignment
	if szidx >= maxSzidx || count == 0 || maxnext != size-blockSize || nextoffset < poolHeader ||
		nextoffset > size || (nextoffset-poolHeader)%blockSize != 0 {
		return nil, false
	}

	used := (nextoffset - poolHeader) / blockSize
	p = &pool{start: start, blockSize: blockSize, end: start + nextoffset, live: count}
	for at := mem.Word(content, poolFreeblock); at != 0; {
		offset := at - start
		isBlock := at >= start+poolHeader && at < p.end && (offset-poolHeader)%blockSize == 0
		if !isBlock || p.free[at] {
			return nil, true
		}
		if p.free == nil {
			p.free = make(map[uint64]bool)
		}
		p.free[at] = true
		at = mem.Word(content, offset)
	}
	if count > used || used-uint64(len(p.free)) != count {
		return nil, true
	}
	return p, false
}

// find returns the live block of an address.
func (p *pool) find(address uint64) (block, bool) {
	if address < p.start+poolHeader || address >= p.end {
		return block{}, false
	}
	start := address - (address-p.start-poolHeader)%p.blockSize
	if p.free[start] {
		return block{}, false
	}
	return block{mem.Span{Start: start, End: start + p.blockSize}, blockPool}, true
}

// poolAt returns the pool of an address; nil: there is none. isChanging is as parsePool returns it.
func (p *piece) poolAt(address, size uint64) (found *pool, isChanging bool) {
	start := address &^ (size - 1)
	if known, ok := p.pools[start]; ok {
		return known, known == nil
	}
	content := p.at(start, size)
	if content == nil || !p.isPresent(start) {
		return nil, false
	}
	found, isChanging = parsePool(content, start)
	if isChanging { // once more
		if again := p.memory.readAround(start, size); again != nil {
			copy(content, again)
			found, isChanging = parsePool(content, start)
		}
	}
	if found != nil || isChanging {
		if p.pools == nil {
			p.pools = make(map[uint64]*pool)
		}
		p.pools[start] = found
	}
	return found, isChanging
}

func (p *piece) isPresent(address uint64) bool {
	i := (address - p.start) / process.PageSize
	return address >= p.start && i < uint64(len(p.present)) && p.present[i]
}

// The header of a chunk of glibc: mchunk_prev_size and mchunk_size with flags.
//
// https://github.com/bminor/glibc/blob/glibc-2.41/malloc/malloc.c#L1138
const (
	chunkHeader = 16 // CHUNK_HDR_SZ
	minChunk    = 32 // MINSIZE
	prevInUse   = 1  // PREV_INUSE
	isMmapped   = 2  // IS_MMAPPED
	sizeFlags   = 7
	maxChunk    = 1 << 40
)

// A chunk is a malloc_chunk of a heap.
type chunk struct {
	start, size uint64
	inUse       bool
}

func (c chunk) end() uint64 { return c.start + c.size }

// user is the memory that the program has: the mchunk_prev_size of the next chunk is part of it.
func (c chunk) user() mem.Span {
	return mem.Span{Start: c.start + chunkHeader, End: c.end() + wordSize}
}

// A chunkChain follows the chunks of a heap from its start to its end, as the heap is read.
type chunkChain struct {
	memory *memory
	heap   mem.Span
	at     uint64 // the chunk that the next piece begins in or with
	isLost bool   // the chunks do not fit: they were changing, or it is no heap
	alone  int    // headers that were read for themselves
	// The last of them, and where it is.
	aloneHeader []byte
	aloneAt     uint64
	// ahead are headers that were read before their turn, and are used at once: see readAhead.
	ahead map[uint64][]byte
}

const (
	maxAlone   = 1 << 14 // of a heap
	resyncHops = 4       // chunks in a row that fit
)

// through returns the chunks of a piece; the first may begin before it, and the last end behind it.
func (c *chunkChain) through(p *piece) (chunks []chunk) {
	for !c.isLost && c.at < p.start {
		size, ok := c.size(p, c.at)
		if !ok || c.at+size > p.start || c.at+size >= c.heap.End {
			break
		}
		c.at += size
	}
	for c.at < p.end() && c.at+chunkHeader < c.heap.End {
		if c.isLost && !c.resync(p) {
			return chunks
		}
		size, ok := c.size(p, c.at)
		next := c.at + size
		if !ok {
			c.isLost = true
			continue
		}
		if next >= c.heap.End { // the top chunk
			return append(chunks, chunk{c.at, size, false})
		}
		chunks = append(chunks, chunk{c.at, size, c.isInUse(p, next)})
		if next >= p.end() {
			break
		}
		c.at = next
	}
	return chunks
}

// isInUse reports whether the chunk that the chain is at is in use, by the one that follows.
func (c *chunkChain) isInUse(p *piece, next uint64) bool {
	header := c.header(p, next)
	return header != nil && mem.Word(header, 8)&prevInUse != 0 && !c.memory.cached[c.at]
}

// size returns the size of the chunk at an address, if it has a plausible one.
func (c *chunkChain) size(p *piece, address uint64) (uint64, bool) {
	header := c.header(p, address)
	if header == nil {
		return 0, false
	}
	size := mem.Word(header, 8) &^ sizeFlags
	ok := size >= minChunk && size%chunkHeader == 0 && size < maxChunk &&
		address+size <= c.heap.End && mem.Word(header, 8)&isMmapped == 0
	return size, ok
}

// header returns the header of the chunk at an address, from the piece or for itself.
func (c *chunkChain) header(p *piece, address uint64) []byte {
	if b := p.at(address, chunkHeader); b != nil && p.isPresent(address) && p.isPresent(address+8) {
		return b
	}
	if header := c.ahead[address]; header != nil {
		return header
	}
	if address == c.aloneAt {
		return c.aloneHeader
	}
	if c.alone++; c.alone > maxAlone {
		return nil
	}
	contents, err := c.memory.reader.Peek([]uint64{address}, chunkHeader)
	if err != nil {
		return nil
	}
	c.aloneAt, c.aloneHeader = address, contents[0]
	return contents[0]
}

// readAhead reads where the headers of the next chunks are, if they are as large as this one: buffers of
// one size often follow each other.
func (c *chunkChain) readAhead(at, size uint64) {
	const chunks = 32
	if c.ahead[at+size] != nil {
		return
	}
	var addresses []uint64
	for i := uint64(1); i <= chunks && at+i*size+chunkHeader <= c.heap.End; i++ {
		addresses = append(addresses, at+i*size)
	}
	c.ahead = make(map[uint64][]byte, chunks)
	headers, err := c.memory.reader.Peek(addresses, chunkHeader)
	if err != nil {
		return
	}
	for i, header := range headers {
		if header == nil || mem.Word(header, 8)&^sizeFlags != size {
			if i == 0 && header != nil { // the next chunk, whatever its size
				c.ahead[addresses[i]] = header
			}
			return
		}
		c.ahead[addresses[i]] = header
	}
}

// resync finds the first place behind the last chunk at which several chunks fit in a row.
func (c *chunkChain) resync(p *piece) bool {
	for at := max(c.at+chunkHeader, p.start); at+chunkHeader <= p.end(); at += chunkHeader {
		next, hops := at, 0
		for ; hops < resyncHops && p.at(next, chunkHeader) != nil; hops++ {
			size, ok := c.size(p, next)
			if !ok {
				break
			}
			next += size
		}
		if hops == resyncHops {
			c.at, c.isLost = at, false
			return true
		}
	}
	c.at = p.end()
	return false
}

// blockAt returns the live block of an address in the piece, and false if there is none that is
// known.
func (p *piece) blockAt(address, poolSize uint64) (block, bool) {
	switch p.region.kind {
	case regionHeap:
		i, found := slices.BinarySearchFunc(p.chunks, address, func(c chunk, a uint64) int {
			return cmp.Compare(c.user().Start, a)
		})
		if !found {
			i--
		}
		if i < 0 || !p.chunks[i].inUse || address >= p.chunks[i].user().End {
			return block{}, false
		}
		return block{p.chunks[i].user(), blockChunk}, true
	case regionAnonymous:
		found, isChanging := p.poolAt(address, poolSize)
		switch {
		case found != nil:
			return found.find(address)
		case isChanging:
			return block{}, false
		}
		return p.memory.mmappedAt(address)
	}
	return block{}, false
}

const (
	maxMmapped    = 1 << 30 // bytes of a chunk that are searched back for its header
	headersAtOnce = 512
)

// mmappedAt returns the block of jemalloc or mimalloc that an address is in, if one of them is the
// malloc, or else the chunk with a mapping of its own. Its header is at the start of a page before,
// up to maxMmapped.
func (m *memory) mmappedAt(address uint64) (block, bool) {
	if m.others != nil {
		found, isLive := m.others.At(address)
		return block{found, blockOther}, isLive
	}
	if i, ok := slices.BinarySearchFunc(m.mmapped, address, func(b block, a uint64) int {
		switch {
		case b.End <= a:
			return -1
		case b.Start > a:
			return 1
		}
		return 0
	}); ok {
		return m.mmapped[i], true
	}
	r, ok := m.regionAt(address)
	if !ok {
		return block{}, false
	}
	page := process.PageSize
	first := address &^ (page - 1)
	lowest := max(mem.AlignUp(r.Start, page), first-min(first, maxMmapped))
	at := first + page // the page before it is the next one
	isKnown := func() bool { return m.without.Start < at && at <= m.without.End }
	for at > lowest && !m.budget.check() {
		if isKnown() {
			at = m.without.Start
			break
		}
		var addresses []uint64
		for ; len(addresses) < headersAtOnce && at > lowest && !isKnown(); at -= page {
			addresses = append(addresses, at-page)
		}
		headers, err := m.reader.Peek(addresses, chunkHeader)
		if err != nil {
			return block{}, false
		}
		for i, header := range headers {
			if b, ok := mmappedChunk(header, addresses[i], r.End); ok {
				m.addMmapped(b)
				m.without = mem.Span{Start: addresses[i] + page, End: first + page}
				return b, address >= b.Start && address < b.End
			}
		}
	}
	m.without = mem.Span{Start: at, End: first + page}
	return block{}, false
}

// addMmapped remembers a chunk with a mapping of its own.
func (m *memory) addMmapped(b block) {
	i, found := slices.BinarySearchFunc(m.mmapped, b.Start, func(o block, a uint64) int {
		return cmp.Compare(o.Start, a)
	})
	if !found {
		m.mmapped = slices.Insert(m.mmapped, i, b)
	}
}

// mmappedChunk returns the block of a header at the start of a page, if it is one of a chunk with
// IS_MMAPPED.
func mmappedChunk(header []byte, start, limit uint64) (block, bool) {
	if header == nil || mem.Word(header, 0) != 0 || mem.Word(header, 8)&sizeFlags != isMmapped {
		return block{}, false
	}
	size := mem.Word(header, 8) &^ sizeFlags
	if size < process.PageSize || size > maxChunk || mem.AlignUp(start+size, process.PageSize) > limit {
		return block{}, false
	}
	return block{mem.Span{Start: start + chunkHeader, End: start + size}, blockMmapped}, true
}
