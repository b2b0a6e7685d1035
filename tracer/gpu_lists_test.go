package tracer

import (
	"testing"

	"github.com/allocscope/allocscope/growth"
)

// TestCountLists counts on where a block is in each list, or in no segment of one.
func TestCountLists(t *testing.T) {
	t.Parallel()
	const mib = 1 << 20
	list := func(first uint64, sizes ...int64) *growth.GPUCache {
		c := &growth.GPUCache{}
		for i, size := range sizes {
			start := first + uint64(i)*20*mib
			if size == 0 { // the segment changed while it was read
				continue
			}
			c.Segments = append(c.Segments, growth.GPUSegment{
				Address: start, Size: 20 * mib, Blocks: []growth.GPUBlock{
					{Address: start, Size: size, State: growth.GPUBlockAllocated},
					{Address: start + uint64(size), Size: 20*mib - size},
				},
			})
		}
		return c
	}

	var of target
	for turn, c := range []struct {
		list *growth.GPUCache
		want []int
	}{
		{list(mib, 512, 512, 1024), []int{1, 1, 1}},
		{list(mib, 512, 2048, 1024), []int{2, 1, 2}},
		{list(mib, 512, 2048, 0), []int{3, 2}},
		{list(mib, 512, 512, 1024), []int{4, 1, 3}},
		{list(mib), nil},
		{list(512*mib, 512), []int{1}},
		{list(mib, 512), []int{5}},
		{list(mib), nil},
		{list(mib), nil},
		{list(mib), nil},
		{list(mib), nil},
		{list(mib, 512), []int{1}},
	} {
		of.countLists(c.list)
		if c.list.Lists != turn+1 {
			t.Errorf("list %d is number %d", turn+1, c.list.Lists)
		}
		for i, want := range c.want {
			if got := c.list.Segments[i].Blocks[0].Lists; got != want {
				t.Errorf("list %d, block %d: in %d, want %d", turn+1, i, got, want)
			}
		}
	}
}
