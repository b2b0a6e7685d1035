package residency

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/source"
)

// The heap of this process has grown by 4 MiB in a spike, and by one huge page.
func TestTouches(t *testing.T) {
	scan := func(inSpike bool) *Scan {
		return &Scan{
			Share: 1,
			Segments: []Segment{
				{Region: region.Region{End: 16 * mib, Class: region.MainHeap}, Heap: true, factor: 1},
				{Region: region.Region{Start: 16 * mib, End: 32 * mib, Class: region.Anonymous}, factor: 1},
			},
			runs: mem.Runs{
				{Span: mem.Span{End: mib}, Origin: mem.BeforeTracing},
				{Span: mem.Span{Start: mib, End: 8 * mib}},
				{Span: mem.Span{Start: 8 * mib, End: 10 * mib}, Huge: true},
				{Span: mem.Span{Start: 16 * mib, End: 32 * mib}},
			},
			inSpike: inSpike,
			usual:   mem.Spans{{Start: 0, End: 4 * mib}},
		}
	}

	faults := []source.Fault{{Page: 8 * mib, Stack: 3, Weight: 1}}
	for i := range uint64(8) { // of the same weight; the first stack has three quarters of 4 MiB
		stack := 1 + i%4/3
		faults = append(faults,
			source.Fault{Page: 7*mib + i*4096, Stack: stack, Weight: 128},
			source.Fault{Page: 2*mib + i*4096, Stack: 4, Weight: 128},  // resident before
			source.Fault{Page: 20*mib + i*4096, Stack: 5, Weight: 128}, // not of the heap
			source.Fault{Page: 12*mib + i*4096, Stack: 6, Weight: 128}) // not resident any more
	}

	touchesOf := func(scan *Scan, extents ...addrspace.Extent) []Touch {
		rows := newRows(scan)
		rows.Fill(Samples{Faults: faults, Extents: extents})
		return rows.Touches
	}

	want := []Touch{{Stack: 1, Bytes: 3 * mib}, {Stack: 3, Bytes: 2 * mib}, {Stack: 2, Bytes: mib}}
	if got := touchesOf(scan(true)); !slices.Equal(got, want) {
		t.Errorf("touched %v, want %v", got, want)
	}

	// Who makes the main heap grow has its memory, also where others touch it. Old growth does not count.
	const base = 100
	grown := scan(true)
	grown.keepFaultsFrom = base
	want = []Touch{
		{Stack: 1, Bytes: 3.875 * mib}, {Stack: 9, Bytes: 1.5 * mib}, {Stack: 2, Bytes: 0.625 * mib},
	}
	if got := touchesOf(
		grown,
		addrspace.Extent{Span: mem.Span{Start: 3 * mib, End: 5*mib + mib/2}, Last: base, Stack: 9},
		addrspace.Extent{Span: mem.Span{Start: 6 * mib, End: 7 * mib}, Last: base - 1, Stack: 8},
		addrspace.Extent{Span: mem.Span{Start: 8 * mib, End: 10 * mib}, Last: base, Stack: 1},
		addrspace.Extent{Span: mem.Span{Start: 10 * mib, End: 16 * mib}, Last: base, Stack: 7},
	); !slices.Equal(got, want) {
		t.Errorf("touched %v, want %v", got, want)
	}

	if got := touchesOf(scan(false)); got != nil {
		t.Errorf("touched %v outside spikes", got)
	}
}
