package estimate

import (
	"testing"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/stack"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// liveMap makes a map as the kernel side fills it.
func liveMap(t *testing.T, objects map[bpf.Address]bpf.Allocation) *ebpf.Map {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.Hash, KeySize: 16, ValueSize: 40, MaxEntries: uint32(len(objects) + 1),
	})
	tracertest.NoError(t, err)
	t.Cleanup(func() { m.Close() })
	for key, object := range objects {
		tracertest.NoError(t, m.Put(&key, &object))
	}
	return m
}

func TestReadLive(t *testing.T) {
	t.Run("sizes that a process makes up do not wrap", func(t *testing.T) {
		const forger, honest, addressSpace = 7, 8, 1 << 47
		heap := make(map[bpf.Address]bpf.Allocation)
		for i := range uint64(100_000) {
			size := ^uint64(0) >> (i % 20)
			forged := bpf.Allocation{Size: size, Stack: i % 3, Born: 1}
			if i%2 == 0 {
				forged.Size, forged.Weight = 1+i%7, size
			}
			heap[bpf.Address{Address: i, Tgid: forger}] = forged
		}
		heap[bpf.Address{Address: 1, Tgid: honest}] = bpf.Allocation{Size: 500, Stack: 1, Born: 1}
		tensors := map[bpf.Address]bpf.Allocation{
			{Address: 1, Tgid: forger}: {Size: 1 << 63, Stack: 5, Born: 1},
		}
		k := &kernel.Kernel{Loaded: &bpf.Loaded{}}
		k.Live, k.Tensors = liveMap(t, heap), liveMap(t, tensors)

		sums := make(map[stack.Key]*StackTotals)
		bins := BirthBins{1 << 62}
		e := NewEstimator(&Schedule{}, &liveness.Tracker{}, false, 2, nil, bins)
		objects := tracertest.Must(ReadLive(k, e, sums, nil))(t)

		held := make(Holdings)
		for key, sum := range sums {
			s := &growth.Stack{ID: key.ID, PID: int(key.TGID)}
			held.Add(s, growth.KindHeap, "", sum)
		}
		bytes := make(map[int]float64)
		for _, h := range held.List() {
			if h.InuseBytes < 0 || h.Variance < 0 {
				t.Errorf("stack %d holds %d bytes, variance %v", h.Stack.ID, h.InuseBytes,
					h.Variance)
			}
			bytes[h.Stack.PID] += float64(h.InuseBytes)
		}
		if got := bytes[forger]; got <= 0 || got > 2*addressSpace { // heap and tensors
			t.Errorf("a process of 2^47 bytes of addresses holds %v", got)
		}
		if got := bytes[honest]; got != 500 {
			t.Errorf("another process holds %v bytes, want 500", got)
		}
		if n := len(objects[forger]); n != 100_001 {
			t.Errorf("%d objects", n)
		}

		totals := ReadTensors(k, []int{forger})
		var sample growth.Sample
		totals.Set(&sample, forger)
		if sample.TensorBytes <= 0 || sample.TensorBytes > addressSpace {
			t.Errorf("tensors of %d bytes", sample.TensorBytes)
		}
	})
}
