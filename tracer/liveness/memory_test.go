package liveness

import (
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/mem"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

type recordedMemory struct{ read []uint64 }

func (r *recordedMemory) Peek(addresses []uint64, size int) ([][]byte, error) {
	r.read = append(r.read, addresses...)
	contents := make([][]byte, len(addresses))
	for i, a := range addresses {
		contents[i] = slices.Repeat([]byte{byte(a >> 12)}, size)
	}
	return contents, nil
}

func TestPrivateMemory(t *testing.T) {
	gpu, device := "/dev/nvidia0", "/dev/mem"
	maps := []process.Mapping{
		{Start: 0x1000, End: 0x2000, Read: true, Write: true},
		{Start: 0x2000, End: 0x3000}, // reserved
		{Start: 0x3000, End: 0x4000, Read: true, Write: true},
		{Start: 0x4000, End: 0x5000, Read: true, Path: "/usr/lib/libc.so.6", Inode: 7},
		{Start: 0x5000, End: 0x6000, Read: true, Write: true, Shared: true, Path: gpu, Inode: 8},
		{Start: 0x6000, End: 0x7000, Read: true, Write: true, Path: device, Inode: 9},
		{Start: 0x7000, End: 0x8000, Read: true, Write: true},
		{Start: 0x8000, End: 0x9000, Read: true, Write: true}, // swapped out
		{Start: 0x9000, End: 0xa000, Read: true, Write: true},
	}
	under := &recordedMemory{}
	m := &privateMemory{
		Reader:   under,
		readable: privateSpans(maps).Subtract(mem.Spans{{Start: 0x8000, End: 0x9000}}),
	}

	want := []uint64{0x1000, 0x1ff0, 0x3000, 0x3ff8, 0x4ff0, 0x7ff0, 0x9000, 0x9ff0}
	unwanted := []uint64{
		0, 0xff8, 0x1ff1, 0x2000, 0x2ff8, 0x4ff1, 0x5000, 0x6000, 0x6ff8, 0x7ff1, 0x8000, 0x8ff8,
		0x9ff1, 0xa000, ^uint64(7),
	}
	addresses := slices.Concat(want, unwanted)
	contents := tracertest.Must(m.Peek(addresses, 16))(t)

	if !slices.Equal(under.read, want) {
		t.Errorf("%#x were read, want %#x", under.read, want)
	}
	for i, a := range addresses {
		isWanted, isRead := slices.Contains(want, a), contents[i] != nil
		if isWanted != isRead || isRead && contents[i][0] != byte(a>>12) {
			t.Errorf("%#x: %x", a, contents[i])
		}
	}
}
