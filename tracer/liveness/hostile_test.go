package liveness

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

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
		a := &Allocator{mainArena: address &^ 7, layout: mallocStates[1], tcacheKey: holes}
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
		if _, err := findMainArena(memory, start, content); err != nil {
			t.Fatal(err)
		}
	})
}

// The sizes follow from request2size, and from the remainders that malloc does not split off.
func TestFits(t *testing.T) {
	a := &Allocator{}
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
