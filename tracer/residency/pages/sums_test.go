package pages

import (
	"math/rand/v2"
	"testing"
)

func TestSumsOfAnyStretchAreThoseOfItsRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		var runs Runs
		at := r.Uint64N(100)
		for range r.IntN(20 * stride) {
			run := Run{Span: Span{at, at + 1 + r.Uint64N(9)}, Tag: Tag(r.IntN(int(Tags))), Swapped: r.IntN(4) == 0, File: r.IntN(3) == 0}
			runs, at = append(runs, run), run.End+r.Uint64N(3)
		}
		sums := runs.Sums()
		for range 200 {
			start, end := r.Uint64N(at+10), r.Uint64N(at+10)
			if r.IntN(10) == 0 {
				end = ^uint64(0)
			}
			if got, want := sums.In(start, end), runs.In(start, end); got != want {
				t.Fatalf("%d runs from %d to %d: %+v, want %+v", len(runs), start, end, got, want)
			}
		}
	}
}

// Of so many runs any stretch is summed as quickly as of few.
func BenchmarkAStretch(b *testing.B) {
	for _, count := range []int{100, 1_000_000} {
		runs := make(Runs, count)
		for i := range runs {
			runs[i] = Run{Span: Span{uint64(2 * i), uint64(2*i + 1)}}
		}
		sums := runs.Sums()
		b.Run(map[bool]string{true: "few", false: "many"}[count == 100], func(b *testing.B) {
			for b.Loop() {
				sums.In(1, uint64(2*count-1))
			}
		})
	}
}
