package growth

import (
	"reflect"
	"slices"
	"testing"
)

func held(
	stack *Stack, kind Kind, objects float64, bytes int64, allocObjects, allocBytes float64,
) Holding {
	return Holding{
		Stack: stack, Kind: kind, InuseObjects: objects, InuseBytes: bytes,
		AllocObjects: allocObjects, AllocBytes: allocBytes, Samples: int64(objects),
	}
}

func onGPU(gpu string, bytes int64) Holding {
	return Holding{Stack: first, Kind: KindCudaBlock, GPU: gpu, InuseBytes: bytes, GPUBytes: bytes}
}

func between(start, end []Holding) []Holding {
	return Between(&Snapshot{Holdings: start}, &Snapshot{Holdings: end})
}

var first, second, third = &Stack{ID: 1}, &Stack{ID: 2}, &Stack{ID: 3}

func TestBetween(t *testing.T) {
	t.Run("memory alive at both ends cancels", func(t *testing.T) {
		alive := []Holding{
			held(first, KindHeap, 7.62939453125, 524291, 7.62939453125, 524291.3),
			held(second, KindMmap, 1, 4096, 1, 8192),
		}
		if got := between(alive, slices.Clone(alive)); len(got) != 0 {
			t.Errorf("nothing has changed, and this has grown: %+v", got)
		}
	})

	// The same weights summed in another order differ in their last digits.
	t.Run("rounding is no growth", func(t *testing.T) {
		weights := []float64{0.1, 0.2, 0.3}
		forwards, backwards := weights[0]+weights[1]+weights[2], weights[2]+weights[1]+weights[0]
		if forwards == backwards {
			t.Fatal("this machine does not round")
		}
		start := []Holding{held(first, KindHeap, forwards, 600, forwards, 1000*forwards)}
		end := []Holding{held(first, KindHeap, backwards, 600, backwards, 1000*backwards)}
		if got := between(start, end); len(got) != 0 {
			t.Errorf("rounding has grown: %+v", got)
		}
	})

	one, other := &Stack{PID: 1}, &Stack{PID: 2} // lost stacks of two processes
	for name, c := range map[string]struct{ start, end, want []Holding }{
		"turnover is allocated and not held": {
			[]Holding{held(first, KindHeap, 10, 1000, 10, 1000)},
			[]Holding{held(first, KindHeap, 10, 1000, 510, 51000)},
			[]Holding{held(first, KindHeap, 0, 0, 500, 50000)},
		},
		"negative growth, and a stack that is gone": {
			[]Holding{held(first, KindHeap, 10, 1000, 10, 1000), held(second, KindHeap, 3, 300, 3, 300)},
			[]Holding{held(first, KindHeap, 4, 400, 11, 1100)},
			[]Holding{held(second, KindHeap, -3, -300, -3, -300), held(first, KindHeap, -6, -600, 1, 100)},
		},
		"kinds of one stack": {
			[]Holding{held(first, KindHeap, 1, 100, 1, 100), held(first, KindMmap, 1, 4096, 1, 4096)},
			[]Holding{held(first, KindMmap, 2, 8192, 2, 8192), held(first, KindHeap, 3, 300, 3, 300)},
			[]Holding{held(first, KindMmap, 1, 4096, 1, 4096), held(first, KindHeap, 2, 200, 2, 200)},
		},
		"a stack on two GPUs": {
			[]Holding{onGPU("0", 100), onGPU("1", 40)},
			[]Holding{onGPU("0", 100), onGPU("1", 70)},
			[]Holding{onGPU("1", 30)},
		},
		"lost stacks of two processes": {
			[]Holding{held(one, KindHeap, 1, 100, 1, 100), held(other, KindHeap, 5, 500, 5, 500)},
			[]Holding{held(one, KindHeap, 3, 300, 3, 300), held(other, KindHeap, 6, 600, 6, 600)},
			[]Holding{held(one, KindHeap, 2, 200, 2, 200), held(other, KindHeap, 1, 100, 1, 100)},
		},
	} {
		t.Run(name, func(t *testing.T) {
			startBefore, endBefore := slices.Clone(c.start), slices.Clone(c.end)
			if got := between(c.start, c.end); !reflect.DeepEqual(got, c.want) {
				t.Errorf("grown by %+v, want %+v", got, c.want)
			}
			if !reflect.DeepEqual(c.start, startBefore) || !reflect.DeepEqual(c.end, endBefore) {
				t.Errorf("the snapshots are changed to %+v and %+v", c.start, c.end)
			}
		})
	}

	t.Run("order", func(t *testing.T) {
		end := []Holding{
			held(third, KindHeap, 1, 50, 1, 50), held(second, KindMmap, 1, 70, 1, 70),
			held(second, KindHeap, 1, 70, 1, 70), held(first, KindHeap, 1, 70, 1, 70),
			held(first, KindFile, 1, 900, 1, 900),
		}
		start := []Holding{held(third, KindShmem, 1, 5000, 1, 5000)}
		want := []Holding{
			end[4], end[3], end[2], end[1], end[0], held(third, KindShmem, -1, -5000, -1, -5000),
		}
		for range 20 { // a map lies in between: the order must not be its own
			if got := between(start, end); !reflect.DeepEqual(got, want) {
				t.Fatalf("order %+v, want %+v", got, want)
			}
		}
	})
}

func TestUnclassifyFree(t *testing.T) {
	free := func(pid int) Holding {
		return Holding{
			Stack: NamedStack(pid, "[heap: free but resident]", "main heap"), Kind: KindRetained,
			ResidentBytes: 7,
		}
	}
	s := &Snapshot{Holdings: []Holding{free(1), free(2), held(first, KindHeap, 1, 1, 1, 1)}}

	want := slices.Clone(s.Holdings)
	want[0].Kind, want[0].Stack = KindUnclassified, NamedStack(1, RootUnclassified, "main heap")
	if s.UnclassifyFree(1); !reflect.DeepEqual(s.Holdings, want) {
		t.Errorf("%+v, want %+v", s.Holdings, want)
	}
}

func TestSnapshotTotal(t *testing.T) {
	s := &Snapshot{Holdings: []Holding{
		held(first, KindHeap, 1, 1, 1, 1), held(second, KindHeap, 1, 10, 1, 10),
		held(first, KindMmap, 1, 100, 1, 100), held(first, KindFile, 1, 1000, 1, 1000),
	}}
	if all, some := s.Total(), s.Total(KindHeap, KindFile); all != 1111 || some != 1011 {
		t.Errorf("in all %d, of heap and files %d; want 1111 and 1011", all, some)
	}
}
