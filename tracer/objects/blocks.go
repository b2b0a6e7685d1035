package objects

import (
	"cmp"
	"slices"

	"github.com/allocscope/allocscope/tracer/heap/glibc"
	"github.com/allocscope/allocscope/tracer/heap/pymalloc"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A block is memory that an allocator has handed out at once, and has not got back.
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
	blockOther                    // of another malloc
)

// poolBlock returns the live block of an address in a pool.
func poolBlock(p *pymalloc.Pool, address uint64) (block, bool) {
	found, ok := p.Find(address)
	return block{found, blockPool}, ok
}

// poolAt returns the pool of an address; nil: there is none. isChanging is as ParsePool returns it.
func (p *piece) poolAt(address uint64) (found *pymalloc.Pool, isChanging bool) {
	size := p.memory.poolSize
	start := address &^ (size - 1)
	if known, ok := p.pools[start]; ok {
		return known, known == nil
	}

	content := p.At(start, size)
	if content == nil || !p.IsPresent(start) {
		return nil, false
	}

	found, isChanging = pymalloc.ParsePool(content, start)
	if isChanging { // the process was within malloc or free: once more
		if again := p.memory.readAround(start, size); again != nil {
			copy(content, again)
			found, isChanging = pymalloc.ParsePool(content, start)
		}
	}

	if found != nil || isChanging {
		if p.pools == nil {
			p.pools = make(map[uint64]*pymalloc.Pool)
		}
		p.pools[start] = found
	}
	return found, isChanging
}

// isOwn reports whether a word that leads to a block is of the block's allocator, which keeps none.
func (m *memory) isOwn(b block, at uint64) bool {
	return b.kind == blockOther && m.others.IsOwn(at, b.Span)
}

const (
	maxMmapped    = 1 << 30 // bytes of a chunk that are searched back for its header
	headersAtOnce = 512
)

// mmappedAt returns the block that an address is in, if another malloc than glibc's shows its
// blocks, or else the chunk with a mapping of its own.
func (m *memory) mmappedAt(address uint64) (block, bool) {
	if m.others != nil {
		found, isLive := m.others.At(address)
		return block{found, blockOther}, isLive
	}

	i := lastAt(m.mmapped, address, func(b block) uint64 { return b.Start })
	if i >= 0 && address < m.mmapped[i].End {
		return m.mmapped[i], true
	}
	if r, ok := m.regionAt(address); ok {
		return m.findMmapped(address, r)
	}
	return block{}, false
}

// findMmapped searches back for the header of the chunk that an address is in: it is at the start
// of a page, up to maxMmapped before. Most words of a table lead to the same few chunks, or to
// none: the memory that was searched in vain is remembered.
func (m *memory) findMmapped(address uint64, r region) (block, bool) {
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

		headers, err := m.reader.Peek(addresses, glibc.HeaderSize)
		if err != nil {
			return block{}, false
		}
		for i, header := range headers {
			if chunk, ok := glibc.MmappedChunk(header, addresses[i], r.End); ok {
				b := block{glibc.UserOf(chunk), blockMmapped}
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
