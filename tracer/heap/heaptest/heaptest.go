// Package heaptest has forged memory for the tests of the readers of allocators.
package heaptest

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/allocscope/allocscope/tracer/heap"
)

// A Forgery is memory made of a few pages' contents, which repeat for ever. Pages whose bit
// is set in Holes, modulo 64, cannot be read.
type Forgery struct {
	Content []byte
	Holes   uint64
	Reads   int // so far
}

// Peek implements mem.Reader.
func (m *Forgery) Peek(addresses []uint64, size int) ([][]byte, error) {
	contents := make([][]byte, len(addresses))
	for i, at := range addresses {
		m.Reads++
		if m.Holes>>(at/4096%64)&1 != 0 {
			continue
		}
		contents[i] = make([]byte, size)
		for k := range contents[i] {
			contents[i][k] = m.Content[(at+uint64(k))%uint64(len(m.Content))]
		}
	}
	return contents, nil
}

// ForgedWords are words that point into themselves, or are sizes.
func ForgedWords(seed, start uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	content := make([]byte, 4<<10)
	for at := 0; at < len(content); at += 8 {
		values := []uint64{
			0, 1, 0x21, 0x291, 0x301, 0x35, ^uint64(0), 1 << 55,
			r.Uint64(), r.Uint64N(1 << 12), start + 16*r.Uint64N(1024),
		}
		binary.LittleEndian.PutUint64(content[at:], values[r.IntN(len(values))])
	}
	return content
}

// Objects are objects for a check of forged memory. No malloc returns the addresses of the fourth
// and the fifth.
func Objects(start, address, size uint64) []heap.Object {
	return []heap.Object{
		{Address: address, Size: size},
		{Address: start + 0x40, Size: 24},
		{Address: start + 0x1010, Size: 5000},
		{Address: ^uint64(0), Size: ^uint64(0)},
		{},
		{Address: 16},
	}
}

// MustAnswer checks that a block that is found has the address that was asked for.
func MustAnswer(t testing.TB, blocks heap.Blocks, objects []heap.Object) {
	t.Helper()
	for _, o := range objects {
		for _, address := range []uint64{o.Address, o.Address + 8, o.Address + 8<<10} {
			block, isLive := blocks.At(address)
			if isLive && (address < block.Start || address >= block.End) {
				t.Fatalf("%#x is in %#x", address, block)
			}
			before := address + 1<<20
			next, ok := blocks.Next(address, before)
			if ok && (next.Start < address || next.Start >= before) {
				t.Fatalf("%#x follows %#x", next, address)
			}
		}
	}
}
