package growth

import (
	"math"
	"time"
)

// An Age sums how old the bytes are that stacks hold. The zero value is that of nothing.
type Age struct{ bytes, byteSeconds float64 }

// Add adds a holding of a snapshot: of each bin of births, half of it counts as older than its middle. Where births are not known,
// nothing is added.
func (a *Age) Add(s *Snapshot, h *Holding) {
	for _, b := range h.Births {
		a.addBirth(s, b)
	}
}

func (a *Age) addBirth(s *Snapshot, b Birth) {
	if b.Bin < 0 || b.Bin >= len(s.Bins) {
		return
	}
	from := time.Duration(0)
	if b.Bin > 0 {
		from = s.Bins[b.Bin-1]
	}
	middle := from + (s.Bins[b.Bin]-from)/2
	a.bytes += b.InuseBytes
	a.byteSeconds += b.InuseBytes * (s.Elapsed - middle).Seconds()
}

// Mean age of a byte; false where no births are known.
func (a *Age) Mean() (time.Duration, bool) {
	if !(a.bytes > 0) {
		return 0, false
	}
	return time.Duration(math.Max(a.byteSeconds/a.bytes, 0) * float64(time.Second)), true
}
