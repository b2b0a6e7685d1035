package growth

import (
	"reflect"
	"slices"
	"testing"
)

func held(
	stack *Stack,
	kind Kind,
	objects float64,
	bytes int64,
	allocObjects, allocBytes float64,
) Holding {
	return Holding{
		Stack: stack, Kind: kind, InuseObjects: objects, InuseBytes: bytes,
		AllocObjects: allocObjects, AllocBytes: allocBytes, Samples: int64(objects),
	}
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

	t.Run("turnover is allocated and not held", func(t *testing.T) {
		start := []Holding{held(first, KindHeap, 10, 1000, 10, 1000)}
		end := []Holding{held(first, KindHeap, 10, 1000, 510, 51000)}
		want := []Holding{held(first, KindHeap, 0, 0, 500, 50000)}
		if got := between(start, end); !reflect.DeepEqual(got, want) {
			t.Errorf("a cache that turns over has grown by %+v, want %+v", got, want)
		}
	})

	t.Run("negative growth", func(t *testing.T) {
		start := []Holding{
			held(first, KindHeap, 10, 1000, 10, 1000), held(second, KindHeap, 3, 300, 3, 300),
		}
		end := []Holding{held(first, KindHeap, 4, 400, 11, 1100)}
		want := []Holding{
			held(second, KindHeap, -3, -300, -3, -300), held(first, KindHeap, -6, -600, 1, 100),
		}
		if got := between(start, end); !reflect.DeepEqual(got, want) {
			t.Errorf("grown by %+v, want %+v", got, want)
		}
	})

	t.Run("a new stack", func(t *testing.T) {
		end := []Holding{held(first, KindMmap, 2, 8192, 2, 16384)}
		if got := between(nil, end); !reflect.DeepEqual(got, end) {
			t.Errorf("grown by %+v, want %+v", got, end)
		}
	})

	t.Run("kinds of one stack", func(t *testing.T) {
		start := []Holding{
			held(first, KindHeap, 1, 100, 1, 100), held(first, KindMmap, 1, 4096, 1, 4096),
		}
		end := []Holding{
			held(first, KindMmap, 2, 8192, 2, 8192), held(first, KindHeap, 3, 300, 3, 300),
		}
		want := []Holding{
			held(first, KindMmap, 1, 4096, 1, 4096), held(first, KindHeap, 2, 200, 2, 200),
		}
		if got := between(start, end); !reflect.DeepEqual(got, want) {
			t.Errorf("grown by %+v, want %+v", got, want)
		}
	})

	t.Run("lost stacks of two processes", func(t *testing.T) {
		one, other := &Stack{PID: 1}, &Stack{PID: 2}
		start := []Holding{
			held(one, KindHeap, 1, 100, 1, 100), held(other, KindHeap, 5, 500, 5, 500),
		}
		end := []Holding{held(one, KindHeap, 3, 300, 3, 300), held(other, KindHeap, 6, 600, 6, 600)}
		want := []Holding{
			held(one, KindHeap, 2, 200, 2, 200), held(other, KindHeap, 1, 100, 1, 100),
		}
		if got := between(start, end); !reflect.DeepEqual(got, want) {
			t.Errorf("grown by %+v, want %+v", got, want)
		}
	})

	t.Run("order", func(t *testing.T) {
		end := []Holding{
			held(
				third, KindHeap, 1, 50, 1, 50,
			), held(second, KindMmap, 1, 70, 1, 70), held(second, KindHeap, 1, 70, 1, 70),
			held(first, KindHeap, 1, 70, 1, 70), held(first, KindFile, 1, 900, 1, 900),
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

	t.Run("the snapshots are not changed", func(t *testing.T) {
		start := []Holding{held(second, KindHeap, 1, 100, 1, 100)}
		end := []Holding{
			held(first, KindHeap, 1, 100, 1, 100), held(second, KindHeap, 5, 500, 5, 500),
		}
		startBefore, endBefore := slices.Clone(start), slices.Clone(end)
		between(start, end)
		if !reflect.DeepEqual(start, startBefore) || !reflect.DeepEqual(end, endBefore) {
			t.Errorf("changed to %+v and %+v", start, end)
		}
	})
}

func TestSnapshotTotal(t *testing.T) {
	s := &Snapshot{Holdings: []Holding{
		{Stack: first, Kind: KindHeap, InuseBytes: 1},
		{Stack: second, Kind: KindHeap, InuseBytes: 10},
		{Stack: first, Kind: KindMmap, InuseBytes: 100},
		{Stack: first, Kind: KindFile, InuseBytes: 1000},
	}}
	for _, c := range []struct {
		kinds []Kind
		want  int64
	}{
		{nil, 1111},
		{[]Kind{KindHeap}, 11},
		{[]Kind{KindHeap, KindFile}, 1011},
		{[]Kind{KindDeviceFile}, 0},
	} {
		if got := s.Total(c.kinds...); got != c.want {
			t.Errorf("Total(%v) = %d, want %d", c.kinds, got, c.want)
		}
	}
}
