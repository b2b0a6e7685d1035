package tracer_test

// The ledger on kernels without PAGEMAP_SCAN (before 6.7).

import (
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
)

func TestWhereTheKernelCannotScanRowsAreTheSame(t *testing.T) {
	target := startLedger(t)
	do(t, target, "before")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	s.ReadPages()
	for _, order := range []string{"heap_small", "heap_partly", "heap_fragment", "map_touched", "stacks", "file_written " + dataFile(t, 8<<20), "share_memfd"} {
		facts := whole(do(t, target, order))
		mustTell(t, balanced(t, s), target.PID(), facts)
	}
	if totals := snapshot(t, s).Mappings; totals.Unmeasured != 0 {
		t.Errorf("%d bytes are not looked at", totals.Unmeasured)
	}
	mustLoseNothing(t, s)
}

func TestWhereTheKernelCannotScanTerabytesAreLeftOutAndNothingElse(t *testing.T) {
	target := startLedger(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	s.ReadPages()
	facts := do(t, target, "map_vast")
	for _, order := range []string{"map_touched", "heap_small"} {
		facts = append(facts, do(t, target, order)...)
	}
	for range 2 {
		got := snapshot(t, s)
		rows, r := rowsOf(got, target.PID()), residentOf(t, got, target.PID())
		for _, f := range facts[1:] {
			row, _ := rowOf(got, target.PID(), f)
			mustBeNear(t, f.name, row, f.bytes)
		}
		mustBeNear(t, "unexplained", rows[growth.KindUnexplained], facts[0].bytes)
		mustBeNear(t, "looked at", int64(r.Scanned*float64(r.RSS)), r.RSS-facts[0].bytes)
		if got.Mappings.Unmeasured != 4<<40 || got.Mappings.Reserved < 4<<40 {
			t.Errorf("%+v, want 4 TiB not looked at", got.Mappings)
		}
	}
}
