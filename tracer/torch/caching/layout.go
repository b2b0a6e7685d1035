package caching

import (
	"math/bits"
	"slices"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/mem"
)

// A layout is where a Block has its fields, in bytes from its start. All versions since 1.13 have the
// same order; the fields before ptr have other sizes by version.
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
func (l *layout) block(self uint64, content []byte) *block {
	b := &block{
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

// A table is a ska::flat_hash_map: https://github.com/pytorch/pytorch/blob/main/c10/util/flat_hash_map.h
type table struct {
	entries uint64 // address
	slots   uint64 // number of them
	size    int    // of an entry, in bytes
}

// Fields of a flat_hash_map, and of its entries: the distance from the wanted slot, then the value.
const (
	tableBytes    = 32
	minSlots      = 2
	maxSlots      = 1 << 20
	maxDistance   = 64 // max_lookups
	emptyDistance = -1
	blockEntry    = 8 + 2*8 // void* to Block*
	poolEntry     = 8 + 3*8 // MempoolId_t to PrivatePool*
)

// tableAt returns the table that may be at an offset of some memory.
func tableAt(content []byte, at, entrySize int) (table, bool) {
	entries, mask := mem.Word(content, at), mem.Word(content, at+8)
	lookups, elements := int8(content[at+17]), mem.Word(content, at+24)
	isTable := entries != 0 && entries%8 == 0 && mask+1 >= minSlots && mask < maxSlots &&
		bits.OnesCount64(mask+1) == 1 && lookups > 0 && lookups <= maxDistance &&
		elements > 0 && elements <= mask+1
	// Its last entry is a sentinel without value.
	return table{entries: entries, slots: mask + uint64(max(lookups, 0)), size: entrySize}, isTable
}

// values returns the values of the entries that are in use.
func (t table) values(memory mem.Reader) ([][]byte, error) {
	content, err := mem.ReadRange(memory, mem.Span{
		Start: t.entries, End: t.entries + t.slots*uint64(t.size),
	})
	if err != nil {
		return nil, err
	}

	var values [][]byte
	for entry := range slices.Chunk(content, t.size) {
		if distance := int8(entry[0]); len(entry) == t.size && distance >= 0 && distance <= maxDistance {
			values = append(values, entry[8:])
		}
	}

	return values, nil
}

// A pair is an entry of a table of allocated blocks.
type pair struct{ address, block uint64 }

// pairs returns the entries in use.
func (t table) pairs(memory mem.Reader) ([]pair, error) {
	values, err := t.values(memory)
	pairs := make([]pair, 0, len(values))
	for _, v := range values {
		if p := (pair{mem.Word(v, 0), mem.Word(v, 8)}); p.block != 0 && p.block%8 == 0 {
			pairs = append(pairs, p)
		}
	}

	return pairs, err
}

// findTables finds the tables of allocated blocks in the library's variables, and the layout of the
// blocks.
func (r *Reader) findTables(variables mem.Spans) error {
	r.tables = nil
	for _, span := range variables {
		content, err := mem.ReadRange(r.memory, span)
		if err != nil {
			return err
		}
		for at := 0; at+tableBytes <= len(content) && len(r.tables) < maxTables; at += 8 {
			t, ok := tableAt(content, at, blockEntry)
			if !ok {
				continue
			}
			pairs, err := t.pairs(r.memory)
			if err != nil {
				return err
			}
			isOfBlocks, err := r.fits(pairs)
			if err != nil {
				return err
			}
			if isOfBlocks {
				r.tables = append(r.tables, t)
			}
		}
	}

	return nil
}

const (
	sampledBlocks = 64 // of a table are checked
	minFitShare   = 0.9
	firstPtr      = 40 // the first offset at which ptr may be
	lastPtr       = 160
)

// fits reports whether the entries are blocks by their addresses. It learns the layout from them.
func (r *Reader) fits(pairs []pair) (bool, error) {
	pairs = pairs[:min(len(pairs), sampledBlocks)]
	addresses := make([]uint64, len(pairs))
	for i, p := range pairs {
		addresses[i] = p.block
	}

	contents, err := r.memory.Peek(addresses, lastPtr+eventsAt+8)
	if err != nil {
		return false, err
	}

	var fitting map[uint64]int
	for at := uint64(firstPtr); at <= lastPtr; at += 8 {
		n := 0
		for i, content := range contents {
			if content != nil && pairs[i].address != 0 && mem.Word(content, at) == pairs[i].address &&
				content[at+allocatedAt] == 1 {
				n++
			}
		}
		if n > 0 && float64(n) >= minFitShare*float64(len(pairs)) {
			fitting = map[uint64]int{at: n}
			break
		}
	}

	for at := range fitting {
		if r.layout == nil || r.layout.ptr != at {
			r.layout, err = r.layoutWith(at, contents)
		}
		return r.layout != nil && err == nil, err
	}

	return false, nil
}

// layoutWith returns the layout with ptr at an offset that makes blocks adjoin their neighbours.
func (r *Reader) layoutWith(ptr uint64, contents [][]byte) (*layout, error) {
	var best *layout
	most := 0
	for _, l := range []*layout{{ptr, true, true}, {ptr, false, false}} {
		n := 0
		for _, content := range contents {
			if content == nil {
				continue
			}
			b := l.block(0, content)
			if !b.isPossible() || b.address%blockUnit != 0 {
				continue
			}
			adjoins, err := r.adjoinsNext(l, b)
			if err != nil {
				return nil, err
			}
			if adjoins {
				n++
			}
		}
		if n > most {
			best, most = l, n
		}
	}

	return best, nil
}

// adjoinsNext reports whether a block ends where the next one begins; it may be the last.
func (r *Reader) adjoinsNext(l *layout, b *block) (bool, error) {
	if b.next == 0 {
		return l.hasRequested == (b.requested <= b.size), nil
	}

	content, err := mem.PeekOne(r.memory, b.next, l.bytes())
	if err != nil || content == nil {
		return false, err
	}

	return l.block(b.next, content).address == b.address+b.size, nil
}
