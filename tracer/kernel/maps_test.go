package kernel

import (
	"maps"
	"slices"
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
	tracertest.NoError(t, err)
	t.Cleanup(func() { m.Close() })

	keys, values := make([]uint32, n), make([]uint64, n)
	for i := range keys {
		keys[i], values[i] = uint32(i), uint64(i)*uint64(i)
	}
	tracertest.Must(m.BatchUpdate(keys, values, nil))(t)
	return m
}

// mustHold fails unless a map that newMap has made has exactly the keys below n that are kept.
func mustHold(t *testing.T, m *ebpf.Map, n uint32, kept func(key uint32) bool) {
	t.Helper()
	got, want := make(map[uint32]uint64), make(map[uint32]uint64)
	err := ReadMap(m, func(key *uint32, value *uint64) {
		if _, ok := got[*key]; ok {
			t.Errorf("key %d is read twice", *key)
		}
		got[*key] = *value
	})
	tracertest.NoError(t, err)

	for key := range n {
		if kept(key) {
			want[key] = uint64(key) * uint64(key)
		}
	}
	if !maps.Equal(got, want) {
		t.Errorf("%d entries, want %d: %v", len(got), len(want), got)
	}
}

const several = 2*BatchEntries + 100 // batches

func TestReadMap(t *testing.T) {
	mustHold(t, newMap(t, several), several, func(uint32) bool { return true })
}

func TestDeleteKeys(t *testing.T) {
	m := newMap(t, 100)
	DeleteKeys(m, []uint32{1000, 3, 3, 1001, 5, 7, 1002})
	mustHold(t, m, 100, func(key uint32) bool { return key != 3 && key != 5 && key != 7 })
}

func TestDeleteWhere(t *testing.T) {
	m := newMap(t, several)
	err := DeleteWhere(m, func(key *uint32, value *uint64) bool {
		return *key >= 10 && *value%2 == 0
	})
	tracertest.NoError(t, err)
	mustHold(t, m, several, func(key uint32) bool { return key < 10 || key%2 == 1 })
}

func TestReadCounters(t *testing.T) {
	tracertest.NeedsRoot(t)
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: 8, MaxEntries: 33,
	})
	tracertest.NoError(t, err)
	defer m.Close()

	cpus := ebpf.MustPossibleCPU()
	want := make([]uint64, m.MaxEntries())
	for i := range want {
		perCPU := make([]uint64, cpus)
		for cpu := range perCPU {
			perCPU[cpu] = uint64(1000*i + cpu)
			want[i] += perCPU[cpu]
		}
		tracertest.NoError(t, m.Put(uint32(i), perCPU))
	}

	got, err := ReadCounters(m)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d, want %d: %v", got, want, err)
	}
}
