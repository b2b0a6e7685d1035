package glibc

import (
	"testing"

	"github.com/allocscope/allocscope/tracer/heap"
	"github.com/allocscope/allocscope/tracer/process"
)

// A chunk that malloc has mapped has whole pages.
func TestMappedSize(t *testing.T) {
	const requested = 1 << 20
	before := process.PageSize
	t.Cleanup(func() { process.PageSize = before })
	for _, page := range []uint64{4 << 10, 16 << 10, 64 << 10} {
		process.PageSize = page
		for _, other := range []uint64{4 << 10, 16 << 10, 64 << 10} {
			size, want := requested+other, uint64(0)
			if other >= page {
				want = size
			}
			if got := mappedSize(size|isMmapped, 0); got != want {
				t.Errorf("pages of %d bytes: of a chunk of %d bytes %d were mapped, want %d", page,
					size, got, want)
			}
		}
	}
}

// The sizes are those that sysmalloc maps for malloc(1 << 20): nb + SIZE_SZ, in whole pages.
func TestFitsMmapped(t *testing.T) {
	const requested = 1 << 20
	sizes := map[uint64]uint64{ // of the chunk, by the size of a page
		4 << 10:  requested + 4<<10,
		16 << 10: requested + 16<<10,
		64 << 10: requested + 64<<10,
	}

	before := process.PageSize
	t.Cleanup(func() { process.PageSize = before })
	for page, want := range sizes {
		process.PageSize = page
		for other, size := range sizes {
			o := heap.Object{Address: 1<<40 + HeaderSize, Size: requested}
			fits := fitsMmapped(o, 0, size)
			mayKeepPage := other > page && size <= want+page // as realloc does
			if fits != (size == want || mayKeepPage) {
				t.Errorf("pages of %d bytes: a chunk of %d bytes fits: %t", page, size, fits)
			}
		}

		offPage := heap.Object{Address: 1<<40 + page/2 + HeaderSize, Size: requested}
		if fitsMmapped(offPage, 0, want) {
			t.Errorf("pages of %d bytes: a chunk in the middle of a page fits", page)
		}
	}
}
