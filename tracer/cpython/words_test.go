package cpython

import (
	"encoding/binary"
	"testing"
)

// TestNewest reads statistics whose words are their own positions.
func TestNewest(t *testing.T) {
	const plain, ring = 24, 64 // bytes of one statistic
	rings := [GCNumGenerations]uint64{0, 11*ring + 8, 14*ring + 16}
	for _, c := range []struct {
		name    string
		form    StatsForm
		indices [GCNumGenerations]byte
		want    [GCNumGenerations]int64 // positions of the collections
		ok      bool
	}{
		{"plain", StatsPlain, [3]byte{}, [3]int64{0, plain, 2 * plain}, true},
		{
			"rings", StatsRings,
			[3]byte{10, 0, 2},
			[3]int64{10*ring + 16, int64(rings[1]) + 16, int64(rings[2]) + 2*ring + 16},
			true,
		},
		{"index beyond the young ring", StatsRings, [3]byte{11, 0, 0}, [3]int64{}, false},
		{"index beyond an old ring", StatsRings, [3]byte{0, 0, 3}, [3]int64{}, false},
	} {
		memory := make([]byte, c.form.Size())
		for at := 0; at < len(memory); at += 8 {
			binary.LittleEndian.PutUint64(memory[at:], uint64(at))
		}
		if c.form == StatsRings {
			for i, items := range []uint64{11, 3, 3} {
				memory[rings[i]+items*ring] = c.indices[i]
			}
		}

		newest, ok := c.form.Newest(memory)
		for i := range newest {
			if ok && (newest[i].Collections != c.want[i] || newest[i].Collected != c.want[i]+8) {
				t.Errorf("%s: %+v, want %d", c.name, newest, c.want)
			}
		}
		if _, isShort := c.form.Newest(memory[1:]); ok != c.ok || isShort {
			t.Errorf("%s: %t, of less memory %t", c.name, ok, isShort)
		}
	}
}
