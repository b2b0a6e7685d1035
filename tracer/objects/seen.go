package objects

// A seenSet remembers addresses of objects in a bit each, by windows. It is exact as long as it has
// room for each window; from then on it may have some that were not added. Those cost samples alone.
type seenSet struct {
	windows map[uint64]int // where the bits of a window are, by its number
	bits    bitmap

	last   uint64 // the window that was looked up last
	lastAt int
}

const (
	bitsOfWindow   = windowBytes / granule
	maxSeenWindows = 1 << 14 // 32 MiB of bits
)

func newSeenSet() *seenSet { return &seenSet{windows: make(map[uint64]int), lastAt: -1} }

// place returns the bit of an address; false: its window has none.
func (s *seenSet) place(address uint64) (bit uint64, ok bool) {
	window := address / windowBytes
	if window != s.last || s.lastAt < 0 {
		at, isKnown := s.windows[window]
		if isFull := len(s.windows) == maxSeenWindows; !isKnown && isFull {
			at = int(window % maxSeenWindows)
		} else if !isKnown {
			return 0, false
		}
		s.last, s.lastAt = window, at
	}
	return uint64(s.lastAt)*bitsOfWindow + address%windowBytes/granule, true
}

func (s *seenSet) add(address uint64) {
	bit, ok := s.place(address)
	if !ok {
		s.windows[address/windowBytes] = len(s.windows)
		s.bits = append(s.bits, make(bitmap, bitsOfWindow/64)...)
		bit, _ = s.place(address)
	}
	s.bits.add(bit)
}

// has reports whether an address may have been added. A nil set has none.
func (s *seenSet) has(address uint64) bool {
	if s == nil {
		return false
	}
	bit, ok := s.place(address)
	return ok && s.bits.has(bit)
}
