package mem

import (
	"math/rand/v2"
	"testing"
)

func randomRun(r *rand.Rand, start, end uint64) Run {
	return Run{
		Span:    Span{start, end},
		Origin:  Origin(r.IntN(int(OriginCount))),
		Swapped: r.IntN(4) == 0, File: r.IntN(3) == 0, Huge: r.IntN(5) == 0,
	}
}

// pageModel is the page at each address of the model, or nil.
type pageModel [modelSize]*Run

func randomRuns(r *rand.Rand) (runs Runs, at pageModel) {
	for start := uint64(0); start < modelSize; {
		end := min(modelSize, start+1+r.Uint64N(9))
		if r.IntN(3) > 0 {
			run := randomRun(r, start, end)
			runs = append(runs, run)
			for i := start; i < end; i++ {
				page := run
				at[i] = &page
			}
		}
		start = end
	}
	return runs, at
}

func (m *pageModel) bytesIn(start, end uint64) (bytes Bytes) {
	for i := start; i < end; i++ {
		switch run := m[i]; {
		case run == nil:
		case run.Swapped:
			bytes.Swapped++
		case run.File:
			bytes.File++
		default:
			bytes.Resident[run.Origin]++
		}
	}
	return bytes
}

func TestRuns(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		runs, at := randomRuns(r)
		if r.IntN(2) == 0 {
			spans, in := randomSpans(r)
			origin := Origin(r.IntN(int(OriginCount)))
			runs = runs.WithOrigin(spans, origin)
			for i, run := range at {
				if in[i] && run != nil && !run.File {
					run.Origin = origin
				}
			}
		}
		if r.IntN(2) == 0 {
			spans, in := randomSpans(r)
			runs = runs.WithoutResident(spans)
			for i, run := range at {
				if in[i] && run != nil && !run.Swapped {
					at[i] = nil
				}
			}
		}

		start, end := r.Uint64N(modelSize), r.Uint64N(modelSize)
		want := at.bytesIn(start, end)
		if got := runs.BytesIn(start, end); got != want {
			t.Fatalf("%v from %d to %d: %+v, want %+v", runs, start, end, got, want)
		}
		if got := runs.Clip(start, end).BytesIn(0, modelSize); got != want {
			t.Fatalf("%v clipped to %d-%d: %+v, want %+v", runs, start, end, got, want)
		}
		if got, want := runs.InMemory(), at.bytesIn(0, modelSize); got != want.InMemory() {
			t.Fatalf("%v: %d bytes in memory, want %+v", runs, got, want)
		}

		address := r.Uint64N(modelSize)
		run, ok := runs.Find(address)
		if page := at[address]; ok != (page != nil) ||
			ok && (run.Origin != page.Origin || run.Huge != page.Huge) {
			t.Fatalf("%v at %d: %+v, %t, want %+v", runs, address, run, ok, page)
		}

		var private model
		for i, page := range at {
			private[i] = page != nil && !page.File
		}
		private.mustEqual(t, "private", runs.PrivateSpans())
	}
}

func TestBytes(t *testing.T) {
	b := Bytes{File: 10, Swapped: 3}
	b.Resident[BeforeTracing] = 7
	want := Bytes{File: 20, Swapped: 5} // rounded to the nearest byte
	want.Resident[BeforeTracing] = 11
	if got := b.Scaled(1.5, 2); got != want {
		t.Errorf("scaled by 1.5 and 2: %+v, want %+v", got, want)
	}
}

func TestPrefixSums(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		var runs Runs
		end := r.Uint64N(100)
		for range r.IntN(20 * runsPerSum) {
			run := randomRun(r, end, end+1+r.Uint64N(9))
			runs, end = append(runs, run), run.End+r.Uint64N(3)
		}

		sums := runs.PrefixSums()
		for range 200 {
			from, to := r.Uint64N(end+10), r.Uint64N(end+10)
			if r.IntN(10) == 0 {
				to = ^uint64(0)
			}
			if got, want := sums.BytesIn(from, to), runs.BytesIn(from, to); got != want {
				t.Fatalf("%d runs from %d to %d: %+v, want %+v", len(runs), from, to, got, want)
			}
		}
	}
}
