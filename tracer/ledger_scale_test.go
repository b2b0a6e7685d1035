package tracer_test

// The ledger of large, awkward and restless processes.

import (
	"math"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// addedUp are the rows of a process that does not hold still, by kind: they sum to what the kernel said.
func addedUp(t *testing.T, s *growth.Snapshot, pid int) map[growth.Kind]int64 {
	t.Helper()
	rows := rowsOf(s, pid)
	var sum int64
	for _, bytes := range rows {
		sum += bytes
	}
	if r := residentOf(t, s, pid); sum != r.RSS {
		t.Errorf("rows %v sum to %d bytes, RSS is %d", rows, sum, r.RSS)
	}
	return rows
}

func scaleOf(t *testing.T, orders ...string) (*tracer.Session, *tracertest.Target) {
	t.Helper()
	target := startScale(t, "nothing")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	for _, o := range orders {
		order(target, "%s", o)
	}
	return s, target
}

func TestSixtyThousandMappingsAndTheTopOfTheAddressSpaceAddUp(t *testing.T) {
	s, target := scaleOf(t, "mappings 60000", "top", "reserve 1000")
	rows := rowsOf(balanced(t, s), target.PID())
	mustBeNear(t, "mappings", rows[growth.KindMmap], 60_001*4096)
}

func TestTooManyRunsOfALargeMappingAreSampled(t *testing.T) {
	const pages, limit = 60_000, 20_000
	tracer.LimitRuns(t, limit)
	s, target := scaleOf(t, "stripes 60000")
	for range 3 {
		got := balanced(t, s)
		if r := residentOf(t, got, target.PID()); r.Scanned > 0.5 || r.Scanned < 0.02 {
			t.Errorf("%.3f of the pages were looked at, of which no more than a third can be kept", r.Scanned)
		}
		if row := rowsOf(got, target.PID())[growth.KindMmap]; math.Abs(float64(row)-pages*4096) > 0.1*pages*4096 {
			t.Errorf("mappings of %d bytes, want %d", row, pages*4096)
		}
	}
}

// Small mappings are not sampled.
func TestTooManyRunsOfSmallMappingsAreLeftUnexplained(t *testing.T) {
	const pages, limit = 7_000, 2_000
	tracer.LimitRuns(t, limit)
	s, target := scaleOf(t, "stripes 7000")
	got := snapshot(t, s)
	rows := addedUp(t, got, target.PID())
	if rest := rows[growth.KindUnexplained]; rest < (pages-limit)*4096 {
		t.Errorf("%d bytes unexplained, want at least %d", rest, (pages-limit)*4096)
	}
	if r := residentOf(t, got, target.PID()); r.Scanned > 0.6 {
		t.Errorf("%.3f of the pages are said to have been looked at", r.Scanned)
	}
}

func TestAProcessThatMapsAndUnmapsAllTheTimeAddsUp(t *testing.T) {
	s, target := scaleOf(t, "resident 64", "storm")
	for range 30 {
		rows := addedUp(t, snapshot(t, s), target.PID())
		if off := rows[growth.KindUnexplained]; off > 4<<20 || off < -4<<20 {
			t.Errorf("%d bytes unexplained: %v", off, rows)
		}
	}
	order(target, "calm")
}

func TestAProcessThatEndsInTheMidstIsThereOrIsNot(t *testing.T) {
	t.Parallel()
	for range 3 {
		target := startScale(t, "mappings 20000", "workers 5")
		s := open(t, tracer.Options{PID: target.PID(), Children: true, Interval: 1})
		followUntilTraced(t, s, target.PID())
		snapshot(t, s)
		go target.Process.Kill()
		for s.IsTraced(target.PID()) {
			got := snapshot(t, s)
			for _, r := range got.Residents {
				addedUp(t, got, r.PID)
			}
		}
	}
}

// What they inherited is not theirs alone, and the tree has it once.
func TestFiftyWorkersShareWhatTheyInherited(t *testing.T) {
	const workers, inherited = 50, 64 << 20
	target := startScale(t, "resident 64", "workers 50")
	s := open(t, tracer.Options{PID: target.PID(), Children: true})
	followUntilTraced(t, s, target.PID())
	var got *growth.Snapshot
	eventually(t, "all have been looked at", func() bool {
		s.Follow()
		got = snapshot(t, s)
		return len(got.Residents) == workers+1
	})
	for _, r := range got.Residents {
		rows := addedUp(t, got, r.PID)
		if r.PID != target.PID() {
			mustBeNear(t, "inherited", rows[growth.KindInherited], inherited)
		}
	}
	if sum := treeTotal(got); sum < inherited || sum > 2*inherited {
		t.Errorf("the tree holds %d bytes, want some more than %d", sum, inherited)
	}
}
