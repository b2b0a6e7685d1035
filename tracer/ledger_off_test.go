package tracer_test

// The ledger where the heap is not traced.

import (
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

const unknownHolder = "[heap: holder not known]"

// Two runs of one program differ in who is known to hold, and in nothing else.
func TestWithoutTheHeapItsRowIsOfTheSameSizeAndNamesNobody(t *testing.T) {
	with, without := startLedger(t), startLedger(t)
	full := open(t, tracer.Options{PID: with.PID(), Interval: 1})
	bare := open(t, tracer.Options{PID: without.PID(), Interval: 1, Sources: []string{"mapping", "fault"}})
	for _, order := range []string{"heap_small", "heap_large", "heap_fragment", "map_touched"} {
		do(t, with, order)
		do(t, without, order)
		want, got := balanced(t, full), balanced(t, bare)
		mustBeTheSameHeap(t, got, without, want, with)
	}
	if r := residentOf(t, snapshot(t, bare), without.PID()); r.HeapTraced {
		t.Errorf("%+v, whose heap is not traced", r)
	}
}

func mustBeTheSameHeap(t *testing.T, got *growth.Snapshot, without *tracertest.Target, want *growth.Snapshot, with *tracertest.Target) {
	t.Helper()
	known, unknown := rowsOf(want, with.PID()), rowsOf(got, without.PID())
	mustBeNear(t, unknownHolder, unknown[growth.KindHeap], known[growth.KindHeap]+known[growth.KindRetained]+known[growth.KindMetadata])
	if unknown[growth.KindRetained] != 0 || unknown[growth.KindMetadata] != 0 {
		t.Errorf("rows %v of a heap that is not traced", unknown)
	}
	mustBeNear(t, "mappings", unknown[growth.KindMmap], known[growth.KindMmap])
	for _, h := range holdingsOf(got, without.PID()) {
		for _, function := range functions(h.Stack) {
			if h.ResidentBytes > 0 && h.Kind != growth.KindFile && strings.HasPrefix(function, "heap_") {
				t.Errorf("%s is said to hold %d bytes, of %s", function, h.ResidentBytes, h.Kind)
			}
		}
		if h.Kind == growth.KindHeap && h.Stack.Root != unknownHolder {
			t.Errorf("heap of %v %q where it is not traced", functions(h.Stack), h.Stack.Root)
		}
	}
}
