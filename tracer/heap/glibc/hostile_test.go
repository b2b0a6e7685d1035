package glibc

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/heap/heaptest"
	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// FuzzCheck checks that no contents of memory make a check panic or read without end.
func FuzzCheck(f *testing.F) {
	const start = uint64(0x7f0000000000)
	for seed := range uint64(20) {
		f.Add(heaptest.ForgedWords(seed, start), seed, start+seed*16, uint64(100), seed%3 == 0)
	}

	f.Fuzz(func(t *testing.T, content []byte, holes, address, size uint64, old bool) {
		if len(content) == 0 {
			return
		}
		memory := &heaptest.Forgery{Content: content, Holes: holes}
		a := &Malloc{mainArena: address &^ 7, layout: mallocStates[1], tcacheKey: holes}
		if old {
			a.layout, a.tcacheKey = mallocStates[0], 0
		}
		maps := []process.Mapping{
			{Start: start, End: start + 1<<16, Read: true, Write: true},
			{Start: start + 1<<16, End: start + 1<<17},
			{Start: start + 1<<17, End: start + 9<<20, Read: true, Write: true},
		}
		objects := heaptest.Objects(start, address, size)

		states, err := a.Check(memory, maps, objects)
		isUnknown := err == nil && states[3] == heap.Unknown && states[4] == heap.Unknown
		if !isUnknown || len(states) != len(objects) {
			t.Fatalf("%v, %v", states, err)
		}
		bounds := maxListedObjects + maxBinnedChunks + maxPointers + maxTLSPieces
		if memory.Reads > 4*bounds+1<<20 {
			t.Fatalf("%d reads", memory.Reads)
		}
		for _, hasTop := range []bool{false, true} {
			memory.Reads = 0
			heaps := []heapSpan{{start: start, first: start, end: start + 9<<20}}
			if hasTop {
				heaps[0].topAt = a.mainArena + a.layout.top
			}
			arenas := []arena{{address: a.mainArena}, {address: start}}
			const most = 1 << 12
			sum, err := a.sumBins(memory, arenas, heaps, all, most)
			if err != nil && !errors.Is(err, ErrBrokenChain) && !errors.Is(err, ErrLargeHeap) {
				t.Fatal(err)
			}
			if memory.Reads > 4*most+8*nBins || sum.Free > maxGrown+9<<20 {
				t.Fatalf("%d reads of bins, %d bytes free", memory.Reads, sum.Free)
			}
		}
		for _, name := range []string{"", "[heap]"} {
			maps[2].Path = name
			memory.Reads = 0
			_, err := a.WalkHeaps(memory, maps, all)
			if err != nil && !errors.Is(err, ErrBrokenChain) && !errors.Is(err, ErrLargeHeap) {
				t.Fatal(err)
			}
			if memory.Reads > 4*bounds+1<<20 {
				t.Fatalf("%d reads of a walk", memory.Reads)
			}
			memory.Reads = 0
			heaps, err := a.Heaps(memory, maps)
			if err != nil && !errors.Is(err, ErrBrokenChain) && !errors.Is(err, ErrLargeHeap) {
				t.Fatal(err)
			}
			sorted := mem.MergeSpans(slices.Clone(heaps.Spans))
			if memory.Reads > 4*bounds+1<<20 || sorted.Len() != mem.Spans(heaps.Spans).Len() {
				t.Fatalf("%d reads for heaps %v", memory.Reads, heaps.Spans)
			}
		}
		if _, err := findMainArena(memory, start, content); err != nil {
			t.Fatal(err)
		}
	})
}

// The sizes follow from request2size, and from the remainders that malloc does not split off.
func TestFits(t *testing.T) {
	a := &Malloc{}
	for _, c := range []struct {
		address, size, prevSize, mchunkSize uint64

		want bool
	}{
		{0x1010, 0, 0, 0x21, true},
		{0x1010, 24, 0, 0x21, true},
		{0x1010, 25, 0, 0x21, false},
		{0x1010, 24, 0, 0x31, true},
		{0x1010, 24, 0, 0x41, false},
		{0x1040, 24, 0, 0x41, true},
		{0x1040, 24, 0, 0x51, false},
		{0x1010, 24, 0, 0x25, true},
		{0x1010, 24, 0, 0x29, false},
		{0x1010, 24, 0, 0, false},
		{0x1010, 1000, 0, 0x3f0, true},
		{0x2010, 200000, 0, 0x31000 | isMmapped, true},
		{0x2010, 200000, 0, 0x30ff0 | isMmapped, true},
		{0x2010, 200000, 0, 0x30000 | isMmapped, false},
		{0x2010, 200000, 0, 0x33000 | isMmapped, false},
		{0x2020, 200000, 0x10, 0x30ff0 | isMmapped, true},
		{0x2020, 200000, 0, 0x31000 | isMmapped, false},
		{0x2010, 200000, 0, 0x31000 | isMmapped | prevInUse, false},
	} {
		header := make([]byte, HeaderSize)
		binary.LittleEndian.PutUint64(header, c.prevSize)
		binary.LittleEndian.PutUint64(header[8:], c.mchunkSize)
		if got := a.fits(heap.Object{Address: c.address, Size: c.size}, header); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

func TestSizeClass(t *testing.T) {
	for size, want := range map[uint64]uint64{0: 32, 24: 32, 25: 48, 40: 48, 41: 64, 100: 112} {
		if got := SizeClass(size); got != want {
			t.Errorf("%d bytes take %d, want %d", size, got, want)
		}
	}
}
