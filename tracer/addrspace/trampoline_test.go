package addrspace

import (
	"testing"

	"github.com/allocscope/allocscope/tracer/process"
)

func TestTrampoline(t *testing.T) {
	const page = 4 << 10
	for _, c := range []struct {
		name        string
		start, slot uint64
		want        bool
	}{
		{"x86-64", 0x7fffffffe000, 0x7fffffffe000, true},
		{"x86-64, five-level paging", 0xffffffffffe000, 0xffffffffffe000, true},
		{"arm64, 48 bits", 0xfffffffff000, 0xfffffffff000, true},
		{"arm64, 52 bits", 0xffffffffff000, 0xfffffffff000, true},
		{"other code", 0xffffffffff000, 0xaaaaaaaaa000, false},
		{"none", 0xffffffffff000, 0, false},
	} {
		maps := []process.Mapping{
			{Start: 0xaaaaaaaaa000, End: 0xaaaaaaaaa000 + page, Path: "/usr/bin/python3"},
			{Start: c.start, End: c.start + page, Path: "[uprobes]"},
		}
		if got := returnsToAllocator(0, c.slot, maps); got != c.want {
			t.Errorf("%s: %t, want %t", c.name, got, c.want)
		}
	}
}
