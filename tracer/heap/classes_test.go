package heap

import "testing"

// malloc_usable_size of jemalloc 5.3 and mimalloc 2.0.9 returned these sizes.
func TestSizeClassOf(t *testing.T) {
	for size, want := range map[uint64]uint64{
		0: 8, 9: 16, 17: 32, 100: 112, 129: 160, 600: 640, 5000: 5120, 14336: 14336, 14337: 16384,
		300000: 327680, 300033: 327680, 3 << 20: 3 << 20, 1<<40 + 1: 5 << 38, 1 << 63: 0,
	} {
		if got := SizeClassOf(size); got != want {
			t.Errorf("%d bytes take %d, want %d", size, got, want)
		}
	}
}

// malloc_usable_size of gperftools 2.10 returned these sizes, and the same as TCMallocClassOf for
// all sizes up to 300,000.
func TestTCMallocClassOf(t *testing.T) {
	for size, want := range map[uint64]uint64{
		1: 8, 9: 16, 129: 144, 769: 896, 3329: 4096, 5121: 6144, 20016: 20480, 26625: 32768,
		262144: 262144, 262145: 270336,
	} {
		if got := TCMallocClassOf(size); got != want {
			t.Errorf("%d bytes take %d, want %d", size, got, want)
		}
	}
}
