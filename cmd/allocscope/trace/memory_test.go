package trace

import "testing"

func TestMemoryLimit(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name          string
		machine, want int64
	}{
		{"unknown machine has the least", 0, 256 << 20},
		{"small machine has the least", 2 * gib, 256 << 20},
		{"in between it is a part of the machine", 10 * gib, gib / 2},
		{"large machine has the most", 2048 * gib, gib},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := memoryLimit(c.machine); got != c.want {
				t.Errorf("%d of %d bytes, want %d", got, c.machine, c.want)
			}
		})
	}
}
