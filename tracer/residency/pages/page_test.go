package pages

import (
	"math/rand/v2"
	"testing"
)

// page is one page of the model.
type page struct {
	run    Run
	filled bool
}

// randomRuns are runs of whole pages of ten bytes, and the same page by page.
func randomRuns(r *rand.Rand) (runs Runs, pages [modelSize]page) {
	for at := uint64(0); at < modelSize; {
		length := 1 + r.Uint64N(9)
		end := min(modelSize, at+length)
		if r.IntN(3) > 0 {
			run := Run{Span: Span{at, end}, Tag: Tag(r.IntN(int(Tags))), Swapped: r.IntN(4) == 0, File: r.IntN(3) == 0, Huge: r.IntN(5) == 0}
			runs = append(runs, run)
			for i := at; i < end; i++ {
				pages[i] = page{run, true}
			}
		}
		at = end
	}
	return runs, pages
}

func TestBytesOfRunsAgreeWithAModelOfSinglePages(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		runs, pages := randomRuns(r)
		if r.IntN(2) == 0 {
			spans, in := randomSpans(r)
			tag := Tag(r.IntN(int(Tags)))
			runs = runs.Mark(spans, tag)
			for at := range pages {
				if in[at] && !pages[at].run.File {
					pages[at].run.Tag = tag
				}
			}
		}
		if r.IntN(2) == 0 {
			spans, in := randomSpans(r)
			runs = runs.Without(spans)
			for at := range pages {
				if in[at] && !pages[at].run.Swapped {
					pages[at].filled = false
				}
			}
		}
		start, end := r.Uint64N(modelSize), r.Uint64N(modelSize)
		var want Bytes
		for at := start; at < end; at++ {
			switch p := pages[at]; {
			case !p.filled:
			case p.run.Swapped:
				want.Swapped++
			case p.run.File:
				want.File++
			default:
				want.Resident[p.run.Tag]++
			}
		}
		if got := runs.In(start, end); got != want {
			t.Fatalf("%v from %d to %d: %+v, want %+v", runs, start, end, got, want)
		}
		var between int64
		for _, run := range runs.Between(start, end) {
			between += int64(run.Len())
		}
		if between != want.InMemory()+want.Swapped {
			t.Fatalf("%v between %d and %d has %d bytes, want %+v", runs, start, end, between, want)
		}
		at := r.Uint64N(modelSize)
		if run, ok := runs.At(at); ok != pages[at].filled || ok && (run.Tag != pages[at].run.Tag || run.Huge != pages[at].run.Huge) {
			t.Fatalf("%v at %d: %+v, %t, want %+v", runs, at, run, ok, pages[at])
		}
	}
}

func TestPrivateMemoryIsWhatIsNoFilesSwappedOutOrNot(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 5_000 {
		runs, pages := randomRuns(r)
		var want model
		for at, p := range pages {
			want[at] = p.filled && !p.run.File
		}
		mustEqual(t, "private", runs.Private(), &want)
	}
}

func TestScalingRoundsToTheNearestByte(t *testing.T) {
	b := Bytes{File: 10, Swapped: 3}
	b.Resident[Old] = 7
	got := b.Scaled(1.5, 2)
	want := Bytes{File: 20, Swapped: 5}
	want.Resident[Old] = 11
	if got != want {
		t.Errorf("scaled by 1.5 and 2: %+v, want %+v", got, want)
	}
}
