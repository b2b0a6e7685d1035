package liveness

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
)

// A forgery is memory made of a few pages' contents, which repeat for ever; what the holes say cannot be read.
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

// words is memory of words that point into themselves, or are sizes.
func words(seed uint64, start uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	content := make([]byte, 4<<10)
	for at := 0; at < len(content); at += 8 {
		values := []uint64{0, 1, 0x21, 0x291, 0x301, 0x35, r.Uint64(), start + 16*r.Uint64N(1024), ^uint64(0), 1 << 55, r.Uint64N(1 << 12)}
		binary.LittleEndian.PutUint64(content[at:], values[r.IntN(len(values))])
	}
	return content
}

func FuzzNoMemoryMakesALookPanicOrReadWithoutEnd(f *testing.F) {
	const start = uint64(0x7f0000000000)
	for seed := range uint64(20) {
		f.Add(words(seed, start), seed, start+seed*16, uint64(100), seed%3 == 0)
	}
	f.Fuzz(func(t *testing.T, content []byte, holes, address, size uint64, old bool) {
		if len(content) == 0 {
			return
		}
		memory := &forgery{content: content, holes: holes}
		a := &Allocator{main: address &^ 7, layout: layouts[1], key: holes}
		if old {
			a.layout, a.key = layouts[0], 0
		}
		maps := []process.Mapping{
			{Start: start, End: start + 1<<16, Read: true, Write: true},
			{Start: start + 1<<16, End: start + 1<<17},
			{Start: start + 1<<17, End: start + 9<<20, Read: true, Write: true},
		}
		objects := []Object{{address, size}, {start + 0x40, 24}, {start + 0x1010, 5000}, {^uint64(0), ^uint64(0)}, {0, 0}, {16, 0}}
		states, err := a.Look(memory, maps, objects)
		if err != nil || len(states) != len(objects) || states[3] != Unknown || states[4] != Unknown {
			t.Fatalf("%v, %v", states, err)
		}
		if most := 4*(maxFreed+maxFreeChunks+maxPointers+maxPieces) + 1<<20; memory.reads > most {
			t.Fatalf("%d reads", memory.reads)
		}
		if _, err := findArena(memory, start, content); err != nil {
			t.Fatal(err)
		}
	})
}

// The sizes that malloc gives are those of its source (request2size, and what is too small to be cut off).
func TestOnlyChunksThatMallocMayGiveFitARequest(t *testing.T) {
	a := &Allocator{}
	for _, c := range []struct {
		address, size, previous, word uint64
		fits                          bool
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
		{0x2010, 200000, 0, 0x31000 | isMapped, true},
		{0x2010, 200000, 0, 0x30ff0 | isMapped, true},
		{0x2010, 200000, 0, 0x30000 | isMapped, false},
		{0x2010, 200000, 0, 0x33000 | isMapped, false},
		{0x2020, 200000, 0x10, 0x30ff0 | isMapped, true},
		{0x2020, 200000, 0, 0x31000 | isMapped, false},
		{0x2010, 200000, 0, 0x31000 | isMapped | previousInUse, false},
	} {
		if got := a.fits(Object{c.address, c.size}, c.previous, c.word); got != c.fits {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
