package tracer_test

import (
	"testing"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMoreStacksThanTheKernelsMapHoldsAreAllKept(t *testing.T) {
	const stacks, rounds = 1024, 3
	target := tracertest.Start(t, tracertest.Build(t, "stacks.c", "-fno-omit-frame-pointer"))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, MaxStacks: 600})
	for range rounds {
		target.Say("go")
		target.Await("done")
		snapshot(t, s)
	}
	seen := 0
	for _, h := range snapshot(t, s).Holdings {
		if len(h.Stack.Frames) < 12 || h.Stack.Truncated != "" {
			continue // of the C library
		}
		seen++
		if h.InuseObjects != rounds || h.InuseBytes != 100*rounds {
			t.Errorf("a stack holds %.0f objects, %d bytes, want %d, %d", h.InuseObjects, h.InuseBytes, rounds, 100*rounds)
		}
		if h.AllocObjects != rounds || h.AllocBytes != 100*rounds {
			t.Errorf("a stack has allocated %.0f objects, %.0f bytes, want %d, %d", h.AllocObjects, h.AllocBytes, rounds, 100*rounds)
		}
	}
	if seen != stacks {
		t.Errorf("%d distinct stacks, want %d", seen, stacks)
	}
	mustLoseNothing(t, s)
}

// While the symbols of a large library are read, a program that has just started calls from thousands of places.
func TestMoreStacksThanTheRingBufferHoldsAreKeptWhileNamingWaits(t *testing.T) {
	const stacks = 1 << 14
	target := tracertest.Start(t, tracertest.Build(t, "stacks.c", "-fno-omit-frame-pointer", "-DDEPTH=14", "-DPAUSE_US=0"))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	s.AwaitTables()
	s.WhileNamingWaits(func() {
		target.Say("go")
		target.Await("done")
	})
	seen := 0
	for _, h := range snapshot(t, s).Holdings {
		if len(h.Stack.Frames) >= 16 && h.Stack.Truncated == "" && h.InuseObjects == 1 {
			seen++
		}
	}
	if seen != stacks {
		t.Errorf("%d distinct stacks, want %d", seen, stacks)
	}
	mustLoseNothing(t, s)
}
