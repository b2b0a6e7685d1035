package addrspace

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/mem"
)

func TestBreaks(t *testing.T) {
	extent := func(start, end, last, stack uint64) Extent {
		return Extent{Span: mem.Span{Start: start, End: end}, Last: last, Stack: stack}
	}
	var b Breaks
	for _, step := range []struct {
		name             string
		time, end, stack uint64
		want             []Extent
	}{
		{"where it begins is no growth", 1, 100, 1, nil},
		{"growth", 2, 200, 1, []Extent{extent(100, 200, 2, 1)}},
		{"more of one stack", 3, 300, 1, []Extent{extent(100, 300, 3, 1)}},
		{"another stack", 4, 400, 2, []Extent{extent(100, 300, 3, 1), extent(300, 400, 4, 2)}},
		{"a fall cuts", 5, 350, 3, []Extent{extent(100, 300, 3, 1), extent(300, 350, 4, 2)}},
		{"a fall removes", 6, 250, 3, []Extent{extent(100, 250, 3, 1)}},
		{"growth after a fall", 7, 260, 2, []Extent{extent(100, 250, 3, 1), extent(250, 260, 7, 2)}},
		{"a fall below the beginning", 8, 50, 3, []Extent{}},
		{"growth from there", 9, 150, 3, []Extent{extent(50, 150, 9, 3)}},
	} {
		b.Add(step.time, step.end, step.stack)
		if got := b.Extents(); !slices.Equal(got, step.want) {
			t.Fatalf("%s: %v, want %v", step.name, got, step.want)
		}
	}
}

func TestBreaksAreBounded(t *testing.T) {
	defer func(most int) { maxExtents = most }(maxExtents)
	maxExtents = 10

	var b Breaks
	for i := range uint64(100) {
		b.Add(i, 1+i, i)
	}
	got := b.Extents()
	if n := len(got); n > maxExtents || got[n-1].End != 100 {
		t.Errorf("%v", got)
	}
}
