package glibc

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/allocscope/allocscope/tracer/mem"
)

// all is the residency of a range all of which is in RAM.
func all(start, end uint64) uint64 { return end - start }

// brokenMemory is a heap of chunks of one page each. The first reading of some pages finds no chunk, and
// nor does any from an address on.
type brokenMemory struct {
	broken map[uint64]bool
	end    uint64 // 0: there is none
	pages  int    // read so far
}

func (m *brokenMemory) Peek(addresses []uint64, size int) ([][]byte, error) {
	page := make([]byte, mem.PeekSize)
	binary.LittleEndian.PutUint64(page[8:], mem.PeekSize|prevInUse)

	m.pages += len(addresses)
	contents := make([][]byte, len(addresses))
	for i, address := range addresses {
		if !m.broken[address] && (m.end == 0 || address < m.end) {
			contents[i] = page[:size]
		}
		delete(m.broken, address)
	}
	return contents, nil
}

func TestWalkBounds(t *testing.T) {
	const start = 1 << 40
	for _, c := range []struct {
		name          string
		pages, broken uint64 // broken: one page in so many
		want          error
	}{
		{"large", maxWalkedPages + 1, 0, ErrLargeHeap},
		{"large and busy", 2 * maxWalkedPages, maxWalkedPages / 4, ErrLargeHeap},
		{"very busy", maxWalkedPages, 64, ErrBrokenChain},
	} {
		memory := &brokenMemory{broken: make(map[uint64]bool)}
		for i := c.broken; c.broken > 0 && i < c.pages; i += c.broken {
			memory.broken[start+i*mem.PeekSize] = true
		}

		w := heapWalk{memory: memory, resident: all}
		err := w.walk(heapSpan{start: start, first: start, end: start + c.pages*mem.PeekSize})
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if memory.pages > 2*maxWalkedPages {
			t.Errorf("%s: %d pages were read", c.name, memory.pages)
		}
	}
}

// TestWalkBeyondMaps walks a heap that ends behind the memory that the maps have.
func TestWalkBeyondMaps(t *testing.T) {
	const start, pages = 1 << 40, 10_000
	end := uint64(start + pages*mem.PeekSize)
	memory := &brokenMemory{end: end}
	w := heapWalk{memory: memory, resident: all}
	err := w.walk(heapSpan{start: start, first: start, end: end + 100*mem.PeekSize})
	if !errors.Is(err, ErrBrokenChain) {
		t.Errorf("%v, want %v", err, ErrBrokenChain)
	}
	if memory.pages > 2*pages {
		t.Errorf("%d pages of %d were read", memory.pages, pages)
	}
}
