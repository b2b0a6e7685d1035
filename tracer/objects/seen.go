package objects

import (
	"math/bits"

	"github.com/allocscope/allocscope/tracer/cpython"
)

// Bounds of a seenSet, in bits.
const (
	minSeenBits = 1 << 16
	maxSeenBits = 1 << 28 // 32 MiB
)

// A seenSet remembers addresses of objects in a bit each: a Bloom filter with one hash function. It
// is small, and has all that were added, and besides some that were not. Those cost samples alone,
// of all types alike.
type seenSet struct {
	bits  []uint64
	shift int
}

// newSeenSet returns a set for the objects in some bytes of memory. They are of 16 bytes and more.
func newSeenSet(memory uint64) *seenSet {
	n := min(max(memory/cpython.ObjectHead, minSeenBits), maxSeenBits)
	log := bits.Len64(n - 1)
	return &seenSet{bits: make([]uint64, 1<<log/64), shift: 64 - log}
}

// place returns the bit of an address: multiplicative hashing, Knuth, TAOCP 3, section 6.4.
func (s *seenSet) place(address uint64) uint64 {
	return address / wordSize * 0x9e3779b97f4a7c15 >> s.shift
}

func (s *seenSet) add(address uint64) {
	i := s.place(address)
	s.bits[i/64] |= 1 << (i % 64)
}

// has reports whether an address may have been added. A nil set has none.
func (s *seenSet) has(address uint64) bool {
	if s == nil {
		return false
	}
	i := s.place(address)
	return s.bits[i/64]>>(i%64)&1 == 1
}
