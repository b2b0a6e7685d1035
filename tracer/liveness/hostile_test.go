package liveness

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
)

// A forgery is memory made of a few pages' contents, which repeat for ever; what the holes say
// cannot be read.
type forgery struct {
	content []byte
	holes   uint64
	reads   int
}

func (m *forgery) Peek(addresses []uint64, size int) ([][]byte, error) {
	contents := make([][]byte, len(addresses))
	for i, at := range addresses {
		m.reads++
		if m.holes>>(at/4096%64)&1 != 0 {
			continue
		}
		contents[i] = make([]byte, size)
		for k := range contents[i] {
			contents[i][k] = m.content[(at+uint64(k))%uint64(len(m.content))]
		}
	}
	return contents, nil
}

// forgedWords are words that point into themselves, or are sizes.
func forgedWords(seed, start uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	content := make([]byte, 4<<10)
	for at := 0; at < len(content); at += 8 {
		values := []uint64{
			0, 1, 0x21, 0x291, 0x301, 0x35, ^uint64(0), 1 << 55,
			r.Uint64(), r.Uint64N(1 << 12), start + 16*r.Uint64N(1024),
		}
		binary.LittleEndian.PutUint64(content[at:], values[r.IntN(len(values))])
	}
	return content
}

// FuzzCheck checks that no contents of memory make a check panic or read without end.
func FuzzCheck(f *testing.F) {
	const start = uint64(0x7f0000000000)
	for seed := range uint64(20) {
		f.Add(forgedWords(seed, start), seed, start+seed*16, uint64(100), seed%3 == 0)
	}

	f.Fuzz(func(t *testing.T, content []byte, holes, address, size uint64, old bool) {
		if len(content) == 0 {
			return
		}
		memory := &forgery{content: content, holes: holes}
		a := &glibc{mainArena: address &^ 7, layout: mallocStates[1], tcacheKey: holes}
		if old {
			a.layout, a.tcacheKey = mallocStates[0], 0
		}
		maps := []process.Mapping{
			{Start: start, End: start + 1<<16, Read: true, Write: true},
			{Start: start + 1<<16, End: start + 1<<17},
			{Start: start + 1<<17, End: start + 9<<20, Read: true, Write: true},
		}
		objects := []Object{
			{address, size},
			{start + 0x40, 24},
			{start + 0x1010, 5000},
			{^uint64(0), ^uint64(0)},
			{0, 0},
			{16, 0},
		}

		states, err := a.Check(memory, maps, objects)
		if err != nil || len(states) != len(objects) || states[3] != Unknown || states[4] != Unknown {
			t.Fatalf("%v, %v", states, err)
		}
		bounds := maxListedObjects + maxBinnedChunks + maxPointers + maxTLSPieces
		if memory.reads > 4*bounds+1<<20 {
			t.Fatalf("%d reads", memory.reads)
		}
		for _, heap := range []string{"", "[heap]"} {
			maps[2].Path = heap
			memory.reads = 0
			_, err := a.WalkHeaps(memory, maps, all)
			if err != nil && !errors.Is(err, ErrBrokenChain) && !errors.Is(err, ErrLargeHeap) {
				t.Fatal(err)
			}
			if memory.reads > 4*bounds+1<<20 {
				t.Fatalf("%d reads of a walk", memory.reads)
			}
			memory.reads = 0
			heaps, err := a.heaps(memory, maps)
			if err != nil && !errors.Is(err, ErrBrokenChain) && !errors.Is(err, ErrLargeHeap) {
				t.Fatal(err)
			}
			sorted := mem.MergeSpans(slices.Clone(heaps.Spans))
			if memory.reads > 4*bounds+1<<20 || sorted.Len() != mem.Spans(heaps.Spans).Len() {
				t.Fatalf("%d reads for heaps %v", memory.reads, heaps.Spans)
			}
		}
		if _, err := findMainArena(memory, start, content); err != nil {
			t.Fatal(err)
		}
	})
}

// mustAnswer checks that a block that is found has the address that was asked for.
func mustAnswer(t *testing.T, blocks Blocks, objects []Object) {
	t.Helper()
	for _, o := range objects {
		for _, address := range []uint64{o.Address, o.Address + 8, o.Address + 8<<10} {
			block, isLive := blocks.At(address)
			if isLive && (address < block.Start || address >= block.End) {
				t.Fatalf("%#x is in %#x", address, block)
			}
			before := address + 1<<20
			if next, ok := blocks.Next(address, before); ok && (next.Start < address || next.Start >= before) {
				t.Fatalf("%#x follows %#x", next, address)
			}
		}
	}
}

// FuzzJemalloc checks that no contents of memory make the search for the tree, or a check, panic or
// read without end.
func FuzzJemalloc(f *testing.F) {
	const start = uint64(0x7f0000000000)
	for seed := range uint64(20) {
		f.Add(forgedWords(seed, start), seed, start+seed*16, uint64(100))
	}

	f.Fuzz(func(t *testing.T, content []byte, holes, address, size uint64) {
		if len(content) == 0 {
			return
		}
		memory := &forgery{content: content, holes: holes}
		file := process.FileID{Inode: 1}
		maps := []process.Mapping{
			{Start: start, End: start + 1<<16, Read: true, Inode: 1},
			{Start: start + 1<<16, End: start + 5<<19, Read: true, Write: true, Inode: 1},
			{Start: start + 3<<20, End: start + 6<<20, Read: true, Write: true},
		}
		if _, err := findTree(memory, maps, file); err != nil && !errors.Is(err, errNoTree) {
			t.Fatal(err)
		}

		found := mem.Spans{{Start: start, End: start + 1<<16}}
		j := &jemalloc{root: address &^ 7, variables: found, tcacheQL: size % 2 * 64}
		objects := []Object{
			{address, size}, {start + 0x40, 24}, {start + 0x1010, 5000}, {^uint64(0), ^uint64(0)}, {0, 0},
		}
		states, err := j.Check(memory, maps, objects)
		if err != nil || len(states) != len(objects) || states[3] != Unknown || states[4] != Unknown {
			t.Fatalf("%v, %v", states, err)
		}
		before := memory.reads
		blocks, err := j.blocks(memory)
		if err != nil {
			t.Fatal(err)
		}
		mustAnswer(t, blocks, objects)
		memory.reads = before

		const maxArenaReads = maxJeArenas * (jeArenaBytes/mem.PeekSize + jeArenaBytes/8 + 2)
		const maxReads = maxLeaves*(jeNodeBytes/mem.PeekSize+maxLeafElements) + maxArenaReads
		if memory.reads > maxReads+2*maxJeTcaches+maxJeCachePeek+1<<12 {
			t.Fatalf("%d reads", memory.reads)
		}
	})
}

// FuzzMimalloc is FuzzJemalloc for mimalloc.
func FuzzMimalloc(f *testing.F) {
	const start = uint64(0x7f0000000000)
	for seed := range uint64(20) {
		f.Add(forgedWords(seed, start), seed, start+seed*16, uint64(100))
	}

	f.Fuzz(func(t *testing.T, content []byte, holes, address, size uint64) {
		if len(content) == 0 {
			return
		}
		memory := &forgery{content: content, holes: holes}
		maps := []process.Mapping{{Start: start, End: start + 1<<30, Read: true, Write: true}}
		if _, err := findMimalloc(memory, maps); err != nil && !errors.Is(err, errNoSegment) {
			t.Fatal(err)
		}

		m := &mimalloc{cookie: binary.LittleEndian.Uint64(append(content, make([]byte, 8)...))}
		objects := []Object{
			{address, size}, {start + 0x40, 24}, {start + 1<<17, 5000}, {^uint64(0), ^uint64(0)}, {0, 0},
		}
		states, err := m.Check(memory, maps, objects)
		if err != nil || len(states) != len(objects) || states[3] != Unknown || states[4] != Unknown {
			t.Fatalf("%v, %v", states, err)
		}
		if memory.reads > maxPageBytes/mem.PeekSize+maxDelayedBlocks+1<<14 {
			t.Fatalf("%d reads", memory.reads)
		}

		memory.reads = 0
		blocks, err := m.blocks(memory, maps)
		if err != nil && !errors.Is(err, ErrNoBlocks) {
			t.Fatal(err)
		}
		if err == nil {
			mustAnswer(t, blocks, objects)
		}
		if memory.reads > maxLearnedPages*(2+miMediumPage/mem.PeekSize)+2*maxTriedPages+4*maxDelayedBlocks {
			t.Fatalf("%d reads for blocks", memory.reads)
		}
	})
}

// The sizes follow from request2size, and from the remainders that malloc does not split off.
func TestFits(t *testing.T) {
	a := &glibc{}
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
		header := make([]byte, headerSize)
		binary.LittleEndian.PutUint64(header, c.prevSize)
		binary.LittleEndian.PutUint64(header[8:], c.mchunkSize)
		if got := a.fits(Object{c.address, c.size}, header); got != c.want {
			t.Errorf("%+v: %t", c, got)
		}
	}
}

// The sizes of jemalloc 5.3 and mimalloc 2.0.9 are those of malloc_usable_size.
func TestSizeClass(t *testing.T) {
	for _, c := range []struct {
		allocator Allocator
		classes   map[uint64]uint64
	}{
		{&glibc{}, map[uint64]uint64{0: 32, 24: 32, 25: 48, 40: 48, 41: 64, 100: 112}},
		{&jemalloc{}, map[uint64]uint64{
			0: 8, 9: 16, 17: 32, 100: 112, 129: 160, 600: 640, 5000: 5120, 14336: 14336,
			14337: 16384, 300033: 327680, 3 << 20: 3 << 20, 1<<40 + 1: 5 << 38, 1 << 63: 0,
		}},
		{&mimalloc{}, map[uint64]uint64{8: 8, 17: 32, 600: 640, 300000: 327680}},
	} {
		for size, want := range c.classes {
			if got := c.allocator.SizeClass(size); got != want {
				t.Errorf("%T: %d bytes take %d, want %d", c.allocator, size, got, want)
			}
		}
	}
}

func TestFingerprints(t *testing.T) {
	const size = 256
	fingerprint := func(written int, holes uint64) Fingerprint {
		content := make([]byte, 4096)
		content[written] = 1
		memory := &forgery{content: content, holes: holes}
		found, err := Fingerprints(memory, []Object{{0, size}})
		if err != nil || len(found) != 1 {
			t.Fatalf("%v, %v", found, err)
		}
		return found[0]
	}

	unused := fingerprint(size, 0)
	if start := fingerprint(0, 0); start == unused || start != fingerprint(0, 0) {
		t.Errorf("start: %x after %x", start, unused)
	}
	if middle := fingerprint(size/2, 0); middle == unused {
		t.Errorf("middle: %x", middle)
	}
	if hole := fingerprint(0, 1); hole != 0 {
		t.Errorf("%x of memory that cannot be read", hole)
	}
}
