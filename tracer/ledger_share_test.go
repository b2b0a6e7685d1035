package tracer_test

// The ledger of a process of whose large mappings a share is looked at.

import (
	"fmt"
	"math"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func startLarge(t testing.TB) *tracertest.Target {
	t.Helper()
	target := tracertest.Start(t, tracertest.Build(t, "large.c", "-fno-omit-frame-pointer"))
	target.Await("ready")
	return target
}

// lookAt looks at a share, and wants rows that sum to RSS.
func lookAt(t *testing.T, s *tracer.Session, pid int, share float64) *growth.Snapshot {
	t.Helper()
	got, err := s.LookAt(pid, share)
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, h := range got.Holdings {
		sum += h.ResidentBytes
	}
	if r := residentOf(t, got, pid); sum != r.RSS || r.RSS < 512<<20 {
		t.Errorf("at a share of %v the rows sum to %d bytes, RSS is %d", share, sum, r.RSS)
	}
	return got
}

// rowOf is what a snapshot says of a fact.
func rowOf(s *growth.Snapshot, pid int, f fact) (resident int64, variance float64) {
	for _, h := range holdingsOf(s, pid) {
		if f.of(h) {
			resident, variance = resident+h.ResidentBytes, variance+h.ResidentVariance
		}
	}
	return resident, variance
}

// Rows are estimates then, and say how good they are. Over all looks they are wrong by no more than that, either way.
func TestOfAShareOfThePagesRowsAreWithinTheirErrorAndAddUp(t *testing.T) {
	t.Parallel()
	var errors, of float64
	for range 3 {
		target := startLarge(t)
		s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
		facts := do(t, target, "all")
		full := lookAt(t, s, target.PID(), 1)
		mustTell(t, full, target.PID(), facts)
		if r := residentOf(t, full, target.PID()); r.Scanned != 1 {
			t.Errorf("%v of all pages were looked at", r.Scanned)
		}
		for _, share := range []float64{0.2, 0.3, 0.5} {
			got := lookAt(t, s, target.PID(), share)
			if r := residentOf(t, got, target.PID()); math.Abs(r.Scanned-share) > 0.1 {
				t.Errorf("%v of all pages were looked at, want %v", r.Scanned, share)
			}
			unexplained, _ := rowOf(got, target.PID(), fact{"", growth.KindUnexplained, 0})
			mustBeNear(t, fmt.Sprintf("known at a share of %v", share), residentOf(t, got, target.PID()).RSS-unexplained, residentOf(t, got, target.PID()).RSS)
			for _, f := range facts {
				errors += mustBeAsFar(t, share, f, got, full, target.PID())
				of++
			}
		}
	}
	if mean := errors / math.Sqrt(of); math.Abs(mean) > 4.5 {
		t.Errorf("all rows together are off by %.1f standard deviations", mean)
	}
}

// mustBeAsFar gives the difference of a row from that of the full look in standard deviations.
func mustBeAsFar(t *testing.T, share float64, f fact, got, full *growth.Snapshot, pid int) float64 {
	t.Helper()
	want, exact := rowOf(full, pid, f)
	row, variance := rowOf(got, pid, f)
	deviation := math.Sqrt(variance)
	t.Logf("at a share of %v %s of %s: %+.2f %%, a standard deviation is %.2f %%", share, f.kind, f.name,
		100*float64(row-want)/float64(want), 100*deviation/float64(want))
	switch off := float64(row - want); {
	case exact != 0:
		t.Errorf("%s of %s: a variance of %v where all was looked at", f.kind, f.name, exact)
	case deviation < 0.01*float64(want) || deviation > 0.6*float64(want):
		t.Errorf("%s of %s: a deviation of %.0f bytes of %d", f.kind, f.name, deviation, want)
	case math.Abs(off) > 4.5*deviation:
		t.Errorf("at a share of %v %s of %s: %d ± %.0f bytes, want %d", share, f.kind, f.name, row, deviation, want)
	}
	return float64(row-want) / deviation
}

// What was not looked at is not forgotten, and what was found gone is.
func TestMemoryFromBeforeTheAttachOutlivesLooksAtAShare(t *testing.T) {
	const size = 192 << 20
	target := startLarge(t)
	do(t, target, "dense")
	do(t, target, "all")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	before := rowsOf(lookAt(t, s, target.PID(), 1), target.PID())[growth.KindBeforeTracing]
	for _, share := range []float64{0.3, 0.1, 0.5} {
		got := rowsOf(lookAt(t, s, target.PID(), share), target.PID())
		if math.Abs(float64(got[growth.KindBeforeTracing]-before)) > 0.02*float64(before) {
			t.Errorf("at a share of %v %d bytes are from before the attach, want %d", share, got[growth.KindBeforeTracing], before)
		}
	}
	mustBeNear(t, "from before the attach", rowsOf(lookAt(t, s, target.PID(), 1), target.PID())[growth.KindBeforeTracing], before)
	do(t, target, "discard")
	lookAt(t, s, target.PID(), 0.3)
	mustBeNear(t, "from before the attach", rowsOf(lookAt(t, s, target.PID(), 1), target.PID())[growth.KindBeforeTracing], before-size/2)
}

// Pages that were not looked at may be there all the same.
func TestWhoTouchedMemoryFirstIsStillKnownAfterALookAtAShare(t *testing.T) {
	target := startLarge(t)
	do(t, target, "reserve")
	do(t, target, "all")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	facts := do(t, target, "first")
	before := len(faultsOf(t, s, target.PID()))
	lookAt(t, s, target.PID(), 0.3)
	if after := len(faultsOf(t, s, target.PID())); before < 192<<20/4096 || after < before {
		t.Errorf("%d faults are known after a look, %d before", after, before)
	}
	mustTell(t, lookAt(t, s, target.PID(), 1), target.PID(), facts)
}
