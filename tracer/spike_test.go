package tracer_test

import (
	"math"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestSpikeSnapshot traces a program whose main heap rises twice, and falls in between. Another
// thread fills the memory that two functions have allocated. No probe sees them: source heap is not
// attached.
func TestSpikeSnapshot(t *testing.T) {
	const risen, tolerance = 32 << 20, 2 << 20 // bytes; the heap grows by more than the requests
	program := tracertest.Build(t, "mainheap.c", "-pthread")
	target, s := openOn(t, start(t, program), tracer.Options{
		Interval: 64 << 10, Sources: []string{"mapping", "fault"},
	})
	order(target, "usual")
	snapshot(t, s)
	snapshot(t, s)

	touchedIn := func(take func() (*growth.Snapshot, error)) map[string]int64 {
		snapshot := tracertest.Must(take())(t)
		touched := make(map[string]int64)
		for _, h := range snapshot.Touched {
			touched[caller(h.Stack, program)] += h.ResidentBytes
		}
		return touched
	}
	regular := func() (*growth.Snapshot, error) { return s.Snapshot() }

	for _, rise := range []string{"first", "second"} {
		order(target, "rise")
		s.SetMoment(tracer.Moment{InSpike: true})
		for _, take := range []func() (*growth.Snapshot, error){s.SpikeSnapshot, regular} {
			got := touchedIn(take)
			for _, function := range []string{"first", "second"} {
				if math.Abs(float64(got[function]-risen)) > tolerance {
					t.Errorf("%s rise: %s has %d bytes, want %d, of %v", rise, function,
						got[function], risen, got)
				}
			}
			if got["usual"] != 0 || got["fill"] > tolerance {
				t.Errorf("%s rise: %v", rise, got)
			}
		}

		order(target, "fall")
		s.SetMoment(tracer.Moment{})
		for range 2 {
			if got := touchedIn(regular); len(got) != 0 {
				t.Errorf("after the %s rise: %v", rise, got)
			}
		}
	}
}
