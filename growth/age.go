package growth

import (
	"math"
	"time"
)

// An Age averages the age of bytes. The zero value has none.
type Age struct{ bytes, byteSeconds float64 }

// Add adds the births of a snapshot's holding. A bin of births counts as old as its middle.
func (a *Age) Add(s *Snapshot, h *Holding) {
	for _, b := range h.Births {
		a.AddBirth(s, b)
	}
}

// AddBirth adds one birth of a snapshot's holding. A birth outside the snapshot's bins is skipped.
func (a *Age) AddBirth(s *Snapshot, b Birth) {
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

// Mean age of a byte; false without births.
func (a *Age) Mean() (time.Duration, bool) {
	if !(a.bytes > 0) {
		return 0, false
	}
	return time.Duration(math.Max(a.byteSeconds/a.bytes, 0) * float64(time.Second)), true
}
