package growth_test

import (
	"testing"

	"github.com/allocscope/allocscope/growth"
)

const mib = 1 << 20

// segmentOf returns a segment of these blocks, in MiB: above 0 in use, below 0 free.
func segmentOf(blocks ...int64) growth.GPUSegment {
	s := growth.GPUSegment{GPU: "0", Address: 1 << 44}
	for _, size := range blocks {
		b := growth.GPUBlock{
			Address: s.Address + uint64(s.Size), Size: max(size, -size) * mib,
			Requested: growth.Unknown,
		}
		if size > 0 {
			b.State, b.Requested = growth.GPUBlockAllocated, b.Size-256
		}
		s.Blocks, s.Size = append(s.Blocks, b), s.Size+b.Size
	}
	return s
}

func TestReturnable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		blocks     []int64
		expandable bool
		want       int64
	}{
		"a whole segment":              {[]int64{-20}, false, 20},
		"beside a block in use":        {[]int64{-18, 2}, false, 0},
		"pages between blocks":         {[]int64{19, -41, 20}, true, 40},
		"parts of pages":               {[]int64{1, -38, 1}, true, 0},
		"an expandable one":            {[]int64{-60}, true, 60},
		"the last page is not whole":   {[]int64{20, -10}, true, 10},
		"a block in three pages":       {[]int64{-19, 22, -19}, true, 0},
		"no block":                     {nil, true, 0},
		"free pages before and behind": {[]int64{-20, 5, -15, -20}, true, 40},
	} {
		s := segmentOf(c.blocks...)
		s.Expandable = c.expandable
		if got := s.Returnable(); got != c.want*mib {
			t.Errorf("%s: %d MiB, want %d", name, got/mib, c.want)
		}
	}
}

func TestCacheSums(t *testing.T) {
	t.Parallel()
	graph := segmentOf(-12, 8)
	graph.Pool = growth.GPUPool{Kind: growth.GPUPoolGraph, ID: [2]uint64{1, 0}}
	pending := segmentOf(4, -14, -2)
	pending.Blocks[2].State = growth.GPUBlockPending
	expandable := segmentOf(-20)
	expandable.Expandable = true
	c := growth.GPUCache{Segments: []growth.GPUSegment{expandable, pending, graph}}
	want := []growth.GPUCacheSum{
		{
			GPU: "0", Segments: 2, Expandable: 1, Reserved: 40 * mib, Allocated: 4 * mib, Rounding: 256,
			Pending: 2 * mib, Pinned: 14 * mib, Returnable: 20 * mib, Largest: 20 * mib,
		},
		{
			GPU: "0", Kind: growth.GPUPoolGraph, Segments: 1, Reserved: 20 * mib, Allocated: 8 * mib,
			Rounding: 256, Pinned: 12 * mib, Largest: 12 * mib,
		},
	}
	got := c.Sum()
	if len(got) != len(want) || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
