package tracer

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/residency"
)

// readable is a memory that notes what is read.
type readable struct{ asked []uint64 }

func (r *readable) Peek(addresses []uint64, size int) ([][]byte, error) {
	r.asked = append(r.asked, addresses...)
	contents := make([][]byte, len(addresses))
	for i, a := range addresses {
		contents[i] = slices.Repeat([]byte{byte(a >> 12)}, size)
	}
	return contents, nil
}

func TestWhatIsSwappedOutIsNotRead(t *testing.T) {
	under := &readable{}
	m := &swappedMemory{under, residency.Spans{{Start: 0x2000, End: 0x3000}, {Start: 0x5000, End: 0x7000}}}
	addresses := []uint64{0x1ff0, 0x1ff1, 0x2000, 0x2fff, 0x3000, 0x4ff8, 0x6000, 0x6ff8, 0x7000}
	contents, err := m.Peek(addresses, 16)
	if err != nil {
		t.Fatal(err)
	}
	want := []uint64{0x1ff0, 0x3000, 0x7000}
	if !slices.Equal(under.asked, want) {
		t.Errorf("%#x were read, want %#x", under.asked, want)
	}
	for i, a := range addresses {
		if isThere := slices.Contains(want, a); isThere != (contents[i] != nil) || isThere && contents[i][0] != byte(a>>12) {
			t.Errorf("%#x: %x", a, contents[i])
		}
	}
}
