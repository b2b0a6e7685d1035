package region

import "testing"

// A chunk that malloc has mapped has whole pages.
func TestPageSizes(t *testing.T) {
	const requested = 1 << 20
	before := pageSize
	t.Cleanup(func() { pageSize = before })
	for _, page := range []uint64{4 << 10, 16 << 10, 64 << 10} {
		pageSize = page
		for _, other := range []uint64{4 << 10, 16 << 10, 64 << 10} {
			size, want := requested+other, uint64(0)
			if other >= page {
				want = size
			}
			if got := mappedSize(size|isMmapped, 0); got != want {
				t.Errorf("pages of %d bytes: of a chunk of %d bytes %d were mapped, want %d", page, size,
					got, want)
			}
		}
	}
}
