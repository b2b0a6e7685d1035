package residency

import (
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/residency/region"
	"github.com/allocscope/allocscope/tracer/source"
)

// heapRows are rows of a process whose main heap has 16 MiB, all of them touched since tracing started.
func heapRows(older mem.Spans) *Rows {
	scan := &Scan{
		Share: 1,
		Segments: []Segment{
			{Region: region.Region{End: 16 * mib, Class: region.MainHeap}, Heap: true, factor: 1},
		},
		runs: mem.Runs{{Span: mem.Span{End: 16 * mib}}},
	}
	scan.Status.RSS = 16 * mib
	rows := newRows(scan)
	rows.HeapTraced, rows.HeapComplete, rows.Older = true, true, older
	return rows
}

func sumsOf(rows *Rows) map[growth.Kind]int64 {
	sums := make(map[growth.Kind]int64)
	for _, row := range rows.holdings {
		sums[row.Kind] += row.ResidentBytes
	}
	return sums
}

// TestOlderBlock: a block of malloc that is older than the trace is in use, in an arena too.
func TestOlderBlock(t *testing.T) {
	rows := heapRows(mem.Spans{{Start: 2 * mib, End: 6 * mib}})
	rows.Fill(Samples{Faults: []source.Fault{
		{Page: 3 * mib, Stack: 5, Weight: 1}, {Page: 9 * mib, Stack: 6, Weight: 1},
	}})
	if sums := sumsOf(rows); sums[growth.KindOlder] != 4*mib || sums[growth.KindRetained] != 12*mib {
		t.Errorf("%v, want 4 MiB older and 12 MiB free", sums)
	}
	for _, row := range rows.holdings {
		s := row.Stack
		if row.Kind == growth.KindOlder && (s.Root != growth.RootOlder || s.Frames[0].Line != 5) {
			t.Errorf("touched by %+v, want the frame at line 5", s)
		}
	}
}

// TestRounding: the rest of a size class is metadata, and no free memory.
func TestRounding(t *testing.T) {
	for _, class := range []region.Class{region.Anonymous, region.MainHeap} {
		rows := heapRows(nil)
		rows.Segments[0].Class = class
		rows.SizeClass = func(size uint64) uint64 { return size + size/4 }

		var objects []estimate.LiveObject
		for at := uint64(0); at+5*4096 <= 16*mib; at += 5 * 4096 {
			objects = append(objects, estimate.LiveObject{Address: at, Size: 4 * 4096, Stack: 1, Weight: 1})
		}
		rows.Fill(Samples{Objects: objects})

		count := int64(len(objects))
		sums := sumsOf(rows)
		if sums[growth.KindHeap] != count*4*4096 || sums[growth.KindMetadata] != count*4096 ||
			sums[growth.KindRetained] != 16*mib-count*5*4096 {
			t.Errorf("class %v: %v of %d objects", class, sums, count)
		}
	}
}

// TestOlder: a chunk is older than the trace if the first walk has it, early enough, and each later
// one, if no younger object lies in it, and all younger objects are known.
func TestOlder(t *testing.T) {
	a, b, c := mem.Span{Start: 0, End: 10}, mem.Span{Start: 20, End: 30}, mem.Span{Start: 40, End: 50}
	for name, test := range map[string]struct {
		at    time.Duration
		walks []mem.Spans
		known []estimate.LiveObject
		want  mem.Spans
	}{
		"one walk":          {time.Second, []mem.Spans{{a, b}}, nil, mem.Spans{a, b}},
		"freed":             {time.Second, []mem.Spans{{a, b}, {b}}, nil, mem.Spans{b}},
		"split":             {time.Second, []mem.Spans{{a, b}, {{Start: 0, End: 5}, b}}, nil, mem.Spans{b}},
		"freed, and back":   {time.Second, []mem.Spans{{a, b}, {b}, {a, b}}, nil, mem.Spans{b}},
		"younger":           {time.Second, []mem.Spans{{a, b}, {a, b, c}}, nil, mem.Spans{a, b}},
		"a late walk":       {time.Minute, []mem.Spans{{a, b}}, nil, nil},
		"after a late walk": {time.Minute, []mem.Spans{{a}, {a, b}}, nil, nil},
		"a younger object in its place": {
			time.Second, []mem.Spans{{a, b}}, []estimate.LiveObject{{Address: 25}}, mem.Spans{a},
		},
	} {
		tracker := &Tracker{}
		for _, walk := range test.walks {
			tracker.keepOlder(slices.Clone(walk), test.at)
		}
		if got := tracker.Older(test.known, true); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}

		if got := tracker.Older(test.known, false); len(got) > 0 {
			t.Errorf("%s: %v is older, where not all younger objects are known", name, got)
		}
		tracker.keepOlder(slices.Clone(test.walks[0]), test.at)
		if got := tracker.Older(nil, true); len(got) > 0 {
			t.Errorf("%s: %v is older, though younger objects were lost before", name, got)
		}
	}
}

// TestBlocks: memory that is not there as a whole is a block, until it is unmapped.
func TestBlocks(t *testing.T) {
	segment := func(class region.Class, from, to uint64, origin addrspace.Origin) Segment {
		return Segment{
			Region:      region.Region{Start: from * mib, End: to * mib, Class: class},
			Interval:    addrspace.Interval{Start: from * mib, End: to * mib, Origin: origin},
			HasInterval: true, factor: 1, fileFactor: 1,
		}
	}
	blocksOf := func(tracker *Tracker, touched ...mem.Span) []growth.Block {
		scan := &Scan{Share: 1, Segments: []Segment{
			segment(region.MmappedChunk, 0, 16, addrspace.BeforeTracing),
			segment(region.Anonymous, 16, 32, addrspace.FromCall),
			segment(region.Arena, 32, 48, addrspace.BeforeTracing),
			segment(region.Shmem, 48, 64, addrspace.BeforeTracing),
			segment(region.Anonymous, 64, 80, addrspace.Unobserved),
			segment(region.PythonArena, 80, 96, addrspace.BeforeTracing),
		}}
		for _, span := range touched {
			scan.runs = append(scan.runs,
				mem.Run{Span: mem.Span{Start: span.Start * mib, End: span.End * mib}})
		}
		rows := newRows(scan)
		rows.HeapTraced = true
		return tracker.Blocks(rows)
	}

	tracker := &Tracker{older: []mem.Span{{Start: 33 * mib, End: 37 * mib}}}
	got := blocksOf(tracker, mem.Span{Start: 0, End: 4}, mem.Span{Start: 16, End: 32},
		mem.Span{Start: 32, End: 34}, mem.Span{Start: 48, End: 50})
	want := []growth.Block{
		{Start: 48 * mib, Bytes: 16 * mib, Touched: 2 * mib},
		{Start: 0, Bytes: 16 * mib, Touched: 4 * mib, IsObject: true},
		{Start: 33 * mib, Bytes: 4 * mib, Touched: mib, IsObject: true},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}

	// The second one is full by now.
	got = blocksOf(tracker, mem.Span{Start: 0, End: 16}, mem.Span{Start: 16, End: 32},
		mem.Span{Start: 32, End: 34}, mem.Span{Start: 48, End: 50})
	if want[1].Touched = 16 * mib; len(got) != 3 || !slices.Contains(got, want[1]) {
		t.Errorf("%+v, want %+v", got, want)
	}
}
