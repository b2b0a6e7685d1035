package mem

import (
	"bytes"
	"math"
	"slices"
	"testing"
)

// pages is memory from some address on, of which some pages cannot be read.
type pages struct {
	start uint64
	bytes []byte
	isOut map[uint64]bool // by address
}

func (p *pages) Peek(addresses []uint64, size int) ([][]byte, error) {
	contents := make([][]byte, len(addresses))
	for i, a := range addresses {
		first, last := AlignDown(a, PeekSize), AlignDown(a+uint64(size)-1, PeekSize)
		isIn := a >= p.start && a-p.start+uint64(size) <= uint64(len(p.bytes))
		if isIn && !p.isOut[first] && !p.isOut[last] {
			contents[i] = p.bytes[a-p.start:][:size]
		}
	}

	return contents, nil
}

func TestReadRange(t *testing.T) {
	const start = 16 * PeekSize
	memory := &pages{
		start, bytes.Repeat([]byte{7}, 4*PeekSize), map[uint64]bool{start + PeekSize: true},
	}
	for name, c := range map[string]struct {
		span Span
		want []byte
	}{
		"within a page":            {Span{start + 8, start + 11}, []byte{7, 7, 7}},
		"up to a page that is out": {Span{start + PeekSize - 1, start + PeekSize + 1}, []byte{7, 0}},
		"from a page that is out":  {Span{start + 2*PeekSize - 1, start + 2*PeekSize + 1}, []byte{0, 7}},
		"beyond the end":           {Span{start + 4*PeekSize - 1, start + 4*PeekSize + 1}, []byte{7, 0}},
		"last addresses":           {Span{math.MaxUint64 - 1, math.MaxUint64}, []byte{0}},
		"end before the start":     {Span{start + 1, start}, nil},
	} {
		got, err := ReadRange(memory, c.span)
		if err != nil || !bytes.Equal(got, c.want) {
			t.Errorf("%s: % x, %v, want % x", name, got, err, c.want)
		}
	}

	got, err := ReadRanges(memory, Span{start, start + 2}, Span{},
		Span{start + PeekSize, start + 2*PeekSize + 1})
	want := [][]byte{{7, 7}, {}, append(make([]byte, PeekSize), 7)}
	if err != nil || !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("several: %v, %v", got, err)
	}
}
