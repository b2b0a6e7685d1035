package pages

import (
	"math/rand/v2"
	"slices"
	"testing"
)

func heapOf(resident, known int64) Heap {
	var h Heap
	h.Resident[Fresh], h.Known[Fresh] = resident, known
	return h
}

func TestTheRestOfAHeapIsWhatNoObjectTakes(t *testing.T) {
	got := Rest([]Heap{heapOf(100, 30), heapOf(50, 50), heapOf(10, 0)}, Fresh)
	if want := []int64{70, 0, 10}; !slices.Equal(got, want) {
		t.Errorf("rest %v, want %v", got, want)
	}
	if got := Rest([]Heap{heapOf(100, 30)}, Old); got[0] != 0 {
		t.Errorf("rest of a tag without memory: %v", got)
	}
}

func TestAnEstimateTooHighInOneHeapIsMadeUpForByTheOthers(t *testing.T) {
	got := Rest([]Heap{heapOf(100, 140), heapOf(100, 20), heapOf(100, 60)}, Fresh)
	if want := []int64{0, 53, 26}; !slices.Equal(got, want) { // 120 less 40, in the ratio of 80 to 40
		t.Errorf("rest %v, want %v", got, want)
	}
	if got := Rest([]Heap{heapOf(100, 190), heapOf(100, 20)}, Fresh); !slices.Equal(got, []int64{0, 0}) {
		t.Errorf("rest %v of heaps that are estimated to hold more than there is, want none", got)
	}
}

func TestRestsSumToWhatAllHeapsHaveTogether(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 5_000 {
		var heaps []Heap
		var sum int64
		for range 1 + r.IntN(10) {
			h := heapOf(r.Int64N(1<<40), r.Int64N(1<<40))
			heaps = append(heaps, h)
			sum += h.Resident[Fresh] - h.Known[Fresh]
		}
		var got int64
		for _, rest := range Rest(heaps, Fresh) {
			if rest < 0 {
				t.Fatalf("%+v: a negative rest", heaps)
			}
			got += rest
		}
		if diff := max(0, sum) - got; diff < 0 || diff > int64(len(heaps))+sum>>50 {
			t.Fatalf("%+v: rests sum to %d, want %d", heaps, got, max(0, sum))
		}
	}
}

func TestWhatIsKnownIsMadeToFitIntoWhatIsResident(t *testing.T) {
	got := Fit([]Heap{heapOf(100, 140), heapOf(100, 110)})
	want := [Tags]float64{1, 1, 1, 1}
	want[Fresh] = 0.8
	if got != want {
		t.Errorf("factors %v, want %v", got, want)
	}
	if got := Fit([]Heap{heapOf(100, 140), heapOf(100, 20)}); got[Fresh] != 1 {
		t.Errorf("factor %v of what fits, want 1", got[Fresh])
	}
}
