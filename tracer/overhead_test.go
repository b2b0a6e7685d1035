package tracer_test

import (
	"fmt"
	"syscall"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestOverhead runs sessions under a limit, with the overhead controller.
func TestOverhead(t *testing.T) {
	t.Run("quiet program is probed all the time", testOverheadQuietProgramProbed)
	t.Run("storm of allocations is left to bursts", testOverheadStormAllocationsLeft)
}

// awaitMode waits at most ten minutes until the heap is probed in a certain way.
func awaitMode(t *testing.T, s *tracer.Session, want growth.HeapMode) overhead.Overhead {
	t.Helper()
	var o overhead.Overhead
	eventually(t, fmt.Sprintf("the heap is probed as %q", want), func() bool {
		o = s.Overhead()
		return o.Mode == want
	})
	return o
}

func testOverheadQuietProgramProbed(t *testing.T) {
	target := start(t, tracertest.Build(t, "bursts.c"))
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, Overhead: 0.03})
	awaitMode(t, s, growth.HeapFull)
	eventually(t, "the probes are open", tracer.Probing(s).IsOpen)
	target.Do("keep 1000 100", "churn 500 100", "drop 300")
	mustEstimate(t, snapshot(t, s), "kept_here", 700, 100, 1)
	eventually(t, "the probes have a cost", func() bool { return s.Overhead().InProbes > 0 })
}

// Eight threads only allocate and free, so that probes on each call would slow them a hundredfold.
// While they rest, every call is probed again.
func testOverheadStormAllocationsLeft(t *testing.T) {
	t.Parallel()
	target := start(t, tracertest.Build(t, "leak.c", "-pthread"), "8", "1", "64", "2000000000")
	s := open(t, tracer.Options{PID: target.PID(), Overhead: 0.03, Sources: []string{"heap"}})

	awaitMode(t, s, growth.HeapFull)
	target.Say("go")
	if after := awaitMode(t, s, growth.HeapBursts); len(after.Changes) == 0 {
		t.Errorf("%+v", after)
	}

	must(t, syscall.Kill(target.PID(), syscall.SIGSTOP))
	awaitMode(t, s, growth.HeapFull)
	must(t, syscall.Kill(target.PID(), syscall.SIGCONT))
	awaitMode(t, s, growth.HeapBursts)
}
