package trace

import "testing"

func TestMemoryLimit(t *testing.T) {
	const gib = 1 << 30
	for _, c := range []struct {
		name                string
		machine, live, want int64
	}{
		{"unknown machine has the least", 0, gib, 256 << 20},
		{"small machine has the least", 2 * gib, gib, 256 << 20},
		{"in between the highest is a part of the machine", 10 * gib, gib, gib / 2},
		{"large machine has the most", 2048 * gib, gib, gib},
		{"small heap has the least", 2048 * gib, 60 << 20, 256 << 20},
		{"garbage is half of a large heap", 2048 * gib, 400 << 20, 600 << 20},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := memoryLimit(c.machine, c.live); got != c.want {
				t.Errorf("%d of %d bytes, want %d", got, c.machine, c.want)
			}
		})
	}
}
