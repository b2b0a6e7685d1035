package tracer_test

// The ledger of a process of which a part is swapped out.

import (
	"fmt"
	"testing"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestWhatIsSwappedOutIsNotResidentAndHasItsHolder(t *testing.T) {
	tracertest.Swap(t)
	target := startLedger(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	facts := do(t, target, "map_touched")
	mustTell(t, balanced(t, s), target.PID(), facts)
	facts = do(t, target, "page_out")
	got := balanced(t, s)
	mustTell(t, got, target.PID(), facts)
	want := kilobytes(t, fmt.Sprintf("/proc/%d/status", target.PID()))["VmSwap"]
	var all, here int64
	for _, h := range holdingsOf(got, target.PID()) {
		all += h.SwappedBytes
		if facts[0].of(h) {
			here += h.SwappedBytes
		}
	}
	mustBeNear(t, "swapped out", all, want)
	mustBeNear(t, "swapped out of the mapping", here, 32<<20-facts[0].bytes)
	if r := residentOf(t, got, target.PID()); r.Swap != want {
		t.Errorf("%d bytes swapped out, want %d", r.Swap, want)
	}
}
