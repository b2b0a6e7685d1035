package kernel

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// newMap returns a hash map of the kernel with keys 0 to n-1, each with its square.
func newMap(t *testing.T, n uint32) *ebpf.Map {
	t.Helper()
	tracertest.NeedsRoot(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Hash, KeySize: 4, ValueSize: 8, MaxEntries: 2 * n,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })

	keys, values := make([]uint32, n), make([]uint64, n)
	for i := range keys {
		keys[i], values[i] = uint32(i), uint64(i)*uint64(i)
	}
	if _, err := m.BatchUpdate(keys, values, nil); err != nil {
		t.Fatal(err)
	}
	return m
}

func readAll(t *testing.T, m *ebpf.Map) map[uint32]uint64 {
	t.Helper()
	all := make(map[uint32]uint64)
	err := ReadMap(m, func(key *uint32, value *uint64) {
		if _, ok := all[*key]; ok {
			t.Errorf("key %d is read twice", *key)
		}
		all[*key] = *value
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestReadMap(t *testing.T) {
	const n = 2*BatchEntries + 100 // several batches
	all := readAll(t, newMap(t, n))
	if len(all) != n || all[n-1] != (n-1)*(n-1) {
		t.Errorf("%d entries, the last is %d", len(all), all[n-1])
	}
}

func TestDeleteKeys(t *testing.T) {
	m := newMap(t, 100)
	DeleteKeys(m, []uint32{1000, 3, 3, 1001, 5, 7, 1002})
	all := readAll(t, m)
	for _, key := range []uint32{3, 5, 7} {
		if _, ok := all[key]; ok {
			t.Errorf("key %d is left", key)
		}
	}
	if len(all) != 97 {
		t.Errorf("%d entries are left, want 97", len(all))
	}
}

func TestDeleteWhere(t *testing.T) {
	m := newMap(t, BatchEntries+100)
	err := DeleteWhere(m, func(key *uint32, value *uint64) bool {
		return *key >= 10 && *value%2 == 0
	})
	if err != nil {
		t.Fatal(err)
	}
	all := readAll(t, m)
	for key := range all {
		if key >= 10 && key%2 == 0 {
			t.Errorf("key %d is left", key)
		}
	}
	if want := 10 + (BatchEntries+100-10)/2; len(all) != want {
		t.Errorf("%d entries are left, want %d", len(all), want)
	}
}
