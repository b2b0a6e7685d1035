package pages

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func heapOf(resident, attributed int64) Heap {
	var h Heap
	h.Resident[SinceTracing], h.Attributed[SinceTracing] = resident, attributed
	return h
}

func TestUnattributed(t *testing.T) {
	for _, c := range []struct {
		name   string
		heaps  []Heap
		origin Origin
		want   []int64
	}{
		{
			"difference of resident and attributed",
			[]Heap{heapOf(100, 30), heapOf(50, 50), heapOf(10, 0)},
			SinceTracing,
			[]int64{70, 0, 10},
		},
		{"origin without memory", []Heap{heapOf(100, 30)}, BeforeTracing, []int64{0}},
		{ // 120 less 40, in the ratio of 80 to 40
			"others make up for an estimate that is too high",
			[]Heap{heapOf(100, 140), heapOf(100, 20), heapOf(100, 60)},
			SinceTracing,
			[]int64{0, 53, 26},
		},
		{
			"none where the sum of estimates is too high",
			[]Heap{heapOf(100, 190), heapOf(100, 20)},
			SinceTracing,
			[]int64{0, 0},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := Unattributed(c.heaps, c.origin); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}

	t.Run("sum is kept", func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 8))
		for range 5_000 {
			var heaps []Heap
			var want, got int64
			for range 1 + r.IntN(10) {
				h := heapOf(r.Int64N(1<<40), r.Int64N(1<<40))
				heaps = append(heaps, h)
				want += h.Resident[SinceTracing] - h.Attributed[SinceTracing]
			}

			for _, bytes := range Unattributed(heaps, SinceTracing) {
				if bytes < 0 {
					t.Fatalf("%+v: %d bytes unattributed", heaps, bytes)
				}
				got += bytes
			}
			want = max(0, want)
			if lost := want - got; lost < 0 || lost > int64(len(heaps))+want>>50 {
				t.Fatalf("%+v: %d bytes unattributed, want %d", heaps, got, want)
			}
		}
	})
}

func TestFitFactors(t *testing.T) {
	got := FitFactors([]Heap{heapOf(100, 140), heapOf(100, 110)})
	want := [OriginCount]float64{1, 1, 1, 1}
	want[SinceTracing] = 0.8
	if got != want {
		t.Errorf("factors %v, want %v", got, want)
	}

	if got := FitFactors([]Heap{heapOf(100, 140), heapOf(100, 20)}); got[SinceTracing] != 1 {
		t.Errorf("factor %v where the sum fits, want 1", got[SinceTracing])
	}
}
