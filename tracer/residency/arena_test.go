package residency

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/mem"
)

func arenaOf(resident, attributed int64) arenaBytes {
	var h arenaBytes
	h.Resident[mem.SinceTracing], h.Attributed[mem.SinceTracing] = resident, attributed
	return h
}

func TestUnattributed(t *testing.T) {
	for _, c := range []struct {
		name   string
		heaps  []arenaBytes
		origin mem.Origin
		want   []int64
	}{
		{
			"difference of resident and attributed",
			[]arenaBytes{arenaOf(100, 30), arenaOf(50, 50), arenaOf(10, 0)},
			mem.SinceTracing,
			[]int64{70, 0, 10},
		},
		{"origin without memory", []arenaBytes{arenaOf(100, 30)}, mem.BeforeTracing, []int64{0}},
		{ // 120 less 40, in the ratio of 80 to 40
			"others make up for an estimate that is too high",
			[]arenaBytes{arenaOf(100, 140), arenaOf(100, 20), arenaOf(100, 60)},
			mem.SinceTracing,
			[]int64{0, 53, 26},
		},
		{
			"none where the sum of estimates is too high",
			[]arenaBytes{arenaOf(100, 190), arenaOf(100, 20)},
			mem.SinceTracing,
			[]int64{0, 0},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := unattributed(c.heaps, c.origin); !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}

	t.Run("sum is kept", func(t *testing.T) {
		r := rand.New(rand.NewPCG(7, 8))
		for range 5_000 {
			var heaps []arenaBytes
			var want, got int64
			for range 1 + r.IntN(10) {
				h := arenaOf(r.Int64N(1<<40), r.Int64N(1<<40))
				heaps = append(heaps, h)
				want += h.Resident[mem.SinceTracing] - h.Attributed[mem.SinceTracing]
			}

			for _, bytes := range unattributed(heaps, mem.SinceTracing) {
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
	got := fitFactors([]arenaBytes{arenaOf(100, 140), arenaOf(100, 110)})
	want := [mem.OriginCount]float64{1, 1, 1, 1}
	want[mem.SinceTracing] = 0.8
	if got != want {
		t.Errorf("factors %v, want %v", got, want)
	}

	if got := fitFactors([]arenaBytes{arenaOf(100, 140), arenaOf(100, 20)}); got[mem.SinceTracing] != 1 {
		t.Errorf("factor %v where the sum fits, want 1", got[mem.SinceTracing])
	}
}
