package tracer_test

// The ledger where allocations are sampled.

import (
	"math"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

// Rows are estimates then, and say how good they are; their sum is what it is.
func TestSampledRowsAreWithinTheirErrorAndAddUpAllTheSame(t *testing.T) {
	t.Parallel()
	for range 4 {
		target := startLedger(t)
		s := open(t, tracer.Options{PID: target.PID()})
		facts := do(t, target, "heap_small")
		facts = append(facts, do(t, target, "heap_fragment")...)
		facts = append(facts, do(t, target, "heap_large")...)
		got := balanced(t, s)
		for _, f := range facts {
			mustBeWithinItsError(t, got, target.PID(), f)
		}
		if t.Failed() {
			t.Log(ledgerText(got, target.PID()))
		}
	}
}

// mustBeWithinItsError allows 4.5 standard deviations, and 2 % or 1 MiB as everywhere.
func mustBeWithinItsError(t *testing.T, s *growth.Snapshot, pid int, f fact) {
	t.Helper()
	var row int64
	var variance float64
	for _, h := range holdingsOf(s, pid) {
		if f.of(h) {
			row, variance = row+h.ResidentBytes, variance+h.ResidentVariance
		}
	}
	off, deviation := float64(row-f.bytes), math.Sqrt(variance)
	if math.Abs(off) > 4.5*deviation+max(1<<20, 0.02*float64(f.bytes)) {
		t.Errorf("%s of %s: %d ± %.0f bytes, want %d", f.kind, f.name, row, deviation, f.bytes)
	}
	if f.name == "heap_small" && f.kind == growth.KindHeap && deviation < 0.03*float64(f.bytes) {
		t.Errorf("%s of %s: a deviation of %.0f bytes, which so few samples cannot have", f.kind, f.name, deviation)
	}
}
