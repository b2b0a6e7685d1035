package liveness

import (
	"encoding/binary"
	"slices"
)

// A layout says where the fields of a malloc_state are, in bytes (malloc/malloc.c).
type layout struct {
	fast   uint64 // ten lists of small free chunks; 0: this version has none
	top    uint64 // the chunk at the end, from which the others are cut
	bins   uint64 // binCount heads of doubly linked lists
	next   uint64 // the arenas form a ring
	size   uint64
	fields int // bytes up to bins
}

const (
	binCount   = 127
	fastCount  = 10
	maxArenas  = 1 << 10 // eight for each processor
	maxTried   = 64      // places that may be the main arena, which a program can forge
	maxAddress = 1 << 56 // of user space
)

// layouts of 2.27 to 2.42, and from 2.43 on, which has no fastbins.
var layouts = []layout{
	{fast: 16, top: 96, bins: 112, next: 2160, size: 2200, fields: 112},
	{top: 8, bins: 24, next: 2072, size: 2112, fields: 24},
}

// An arena is what was read of a malloc_state.
type arena struct {
	address uint64
	top     uint64
	fast    []uint64 // chunks
}

// arenas follows the ring of arenas, as far as it can be read.
func (a *Allocator) arenas(memory Memory) ([]arena, error) {
	var found []arena
	for at := a.main; len(found) < maxArenas; {
		head, err := one(memory, at, a.layout.fields)
		if err != nil {
			return nil, err
		}
		next, err := one(memory, at+a.layout.next, 8)
		if err != nil {
			return nil, err
		}
		if head == nil || next == nil {
			break
		}
		read := arena{address: at, top: word(head, int(a.layout.top))}
		for i := 0; i < fastCount && a.layout.fast != 0; i++ {
			read.fast = append(read.fast, word(head, int(a.layout.fast)+8*i))
		}
		found = append(found, read)
		if at = word(next, 0); at == a.main || at%8 != 0 || at == 0 {
			break
		}
	}
	return found, nil
}

// A span bounds addresses, end excluded.
type span struct{ start, end uint64 }

// readTops gives the chunks at the ends of the arenas, which no object lies in. Such a chunk ends with a page. That it is the
// top is read again after its size, which is another thing's soon.
func (a *Allocator) readTops(memory Memory, arenas []arena) ([]span, error) {
	addresses := make([]uint64, 0, 3*len(arenas))
	for _, r := range arenas {
		addresses = append(addresses, r.address+a.layout.top, r.top, r.address+a.layout.top)
	}
	words, err := memory.Peek(addresses, headerSize)
	if err != nil {
		return nil, err
	}
	var tops []span
	for i, r := range arenas {
		before, header, after := words[3*i], words[3*i+1], words[3*i+2]
		if before == nil || header == nil || after == nil || word(before, 0) != r.top || word(after, 0) != r.top {
			continue
		}
		size := word(header, 8) &^ chunkFlags
		if end := r.top + size; r.top < maxAddress && size < maxRequest && end%pageSize == 0 && word(header, 8)&chunkFlags&^notMain == previousInUse {
			tops = append(tops, span{r.top, end})
		}
	}
	return tops, nil
}

func inAny(spans []span, address uint64) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.start <= address && address < s.end })
}

// findArena looks for the main arena in memory of the C library that begins at an address: where its bins are, there are links,
// and its ring leads back to it.
func findArena(memory Memory, start uint64, content []byte) (*Allocator, error) {
	for _, l := range layouts {
		tried := 0
		for at := 0; at+int(l.size) <= len(content) && tried < maxTried; at += 8 {
			if !maybeBins(content[at+int(l.bins):], start+uint64(at)+l.bins) {
				continue
			}
			tried++
			a := &Allocator{main: start + uint64(at), layout: l}
			closed, err := a.isRing(memory)
			if err != nil {
				return nil, err
			}
			if closed {
				return a, nil
			}
		}
	}
	return nil, nil
}

// maybeBins tells whether words may be the heads of bins. The others may all be full, and change while they are read; the last one
// is for no size at all: it is always empty, so that its links lead to itself, as to a chunk.
func maybeBins(content []byte, bins uint64) bool {
	const last = binCount - 1
	if head := bins + 16*last - headerSize; word(content, 16*last) != head || word(content, 16*last+8) != head {
		return false
	}
	for i := range 2 * last {
		if to := word(content, 8*i); to == 0 || to%8 != 0 || to >= maxAddress {
			return false
		}
	}
	return true
}

// isRing reports whether the list of arenas leads back to the first.
func (a *Allocator) isRing(memory Memory) (bool, error) {
	at := a.main
	for range maxArenas {
		next, err := one(memory, at+a.layout.next, 8)
		if err != nil || next == nil {
			return false, err
		}
		if at = word(next, 0); at == a.main {
			return true, nil
		}
		if at == 0 || at%16 != 0 {
			return false, nil
		}
	}
	return false, nil
}

// one reads at one address.
func one(memory Memory, address uint64, size int) ([]byte, error) {
	contents, err := memory.Peek([]uint64{address}, size)
	if err != nil {
		return nil, err
	}
	return contents[0], nil
}

// word is the one at a byte offset of what was read.
func word(content []byte, offset int) uint64 { return binary.LittleEndian.Uint64(content[offset:]) }

// alignUp gives the first multiple of a power of two at or after a number.
func alignUp(n, size uint64) uint64 { return (n + size - 1) &^ (size - 1) }
