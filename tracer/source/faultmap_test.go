package source

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/mem"
)

// TestSplitReleased compares random releases of ranges that overlap with a loop over all of them.
func TestSplitReleased(t *testing.T) {
	for seed := range uint64(2000) {
		random := rand.New(rand.NewPCG(seed, 1))
		var faults []Fault
		for page := range uint64(40) {
			if random.IntN(2) == 0 {
				faults = append(faults, Fault{Page: page, Time: random.Uint64N(20)})
			}
		}
		var released []addrspace.Release
		for range random.IntN(12) {
			start := random.Uint64N(40)
			released = append(released, addrspace.Release{
				Span: mem.Span{Start: start, End: start + random.Uint64N(20)},
				Time: random.Uint64N(20),
			})
		}

		var wantKept []Fault
		var wantGone []uint64
		for _, f := range faults {
			isGone := slices.ContainsFunc(released, func(r addrspace.Release) bool {
				return r.Start <= f.Page && f.Page < r.End && f.Time < r.Time
			})
			if isGone {
				wantGone = append(wantGone, f.Page)
			} else {
				wantKept = append(wantKept, f)
			}
		}

		kept, gone := SplitReleased(faults, released)
		if !slices.Equal(kept, wantKept) || !slices.Equal(gone, wantGone) {
			t.Fatalf("seed %d: %v of\n%v and\n%v\nare gone, want %v",
				seed, gone, faults, released, wantGone)
		}
		if !slices.IsSortedFunc(kept, func(a, b Fault) int { return cmp.Compare(a.Page, b.Page) }) {
			t.Fatalf("seed %d: not in the order of pages", seed)
		}
	}
}
