package growth

import (
	"slices"
	"testing"
	"time"
)

func TestStacksAreSortedByScoreThenByGrowthThenByStack(t *testing.T) {
	trace := []*Snapshot{{}, {Elapsed: time.Second}, {Elapsed: 2 * time.Second}}
	add := func(id uint64, pid int, kind Kind, bytes ...int64) {
		for i, b := range bytes {
			trace[i].Holdings = append(trace[i].Holdings, Holding{Stack: &Stack{ID: id, PID: pid}, Kind: kind, InuseBytes: b})
		}
	}
	add(5, 1, KindMmap, 0, 0, 900)  // all late: no score
	add(0, 2, KindMmap, 0, 5, 10)   // the unknown stack of two processes
	add(0, 1, KindShmem, 0, 5, 10)  // and kinds
	add(0, 1, KindMmap, 0, 5, 10)   //
	add(7, 1, KindMmap, 0, 50, 100) // a leak
	add(8, 1, KindMmap, 0, 100, 120)
	add(3, 1, KindMmap, 10, 5, 0)
	add(4, 1, KindMmap, 5, 5, 5)
	var order []uint64
	var pids []int
	for _, trend := range JudgeStacks(trace, lasting(0, 2), 0) {
		order, pids = append(order, trend.Stack.ID), append(pids, trend.Stack.PID)
	}
	if want := []uint64{7, 8, 0, 0, 0, 5, 4, 3}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
	if want := []int{1, 1, 1, 1, 2, 1, 1, 1}; !slices.Equal(pids, want) {
		t.Errorf("processes %v, want %v", pids, want)
	}
}

func TestHoldingsAreLabelledByStackProcessAndKind(t *testing.T) {
	other := &Stack{ID: first.ID, PID: 77}
	grown := []Holding{
		{Stack: &Stack{ID: first.ID}, Kind: KindMmap},
		{Stack: first, Kind: KindHeap},
		{Stack: other, Kind: KindMmap},
		{Stack: second, Kind: KindMmap, Trend: TrendChurn},
	}
	Label(grown, []StackTrend{
		{Stack: first, Kind: KindMmap, Trend: TrendAccumulating},
		{Stack: first, Kind: KindHeap, Trend: TrendFilling},
		{Stack: other, Kind: KindMmap, Trend: TrendRefill},
	})
	for i, want := range []Trend{TrendAccumulating, TrendFilling, TrendRefill, ""} {
		if grown[i].Trend != want {
			t.Errorf("holding %d is labelled %q, want %q", i, grown[i].Trend, want)
		}
	}
}
