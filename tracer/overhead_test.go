package tracer_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestOverhead runs sessions under a limit, with the overhead controller.
func TestOverhead(t *testing.T) {
	t.Run("quiet program is probed all the time", testOverheadQuietProgramProbedAllTime)
	t.Run("storm of allocations is left to bursts", testOverheadStormAllocationsLeftToBursts)
	t.Run("costs are known only under a limit", testOverheadCostsKnownOnlyUnderLimit)
}

// awaitMode waits until the heap is watched in a certain way.
func awaitMode(t *testing.T, s *tracer.Session, want overhead.HeapMode) overhead.Overhead {
	t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		switch o := s.Overhead(); {
		case o.Mode == want:
			return o
		case time.Now().After(deadline):
			t.Fatalf("the heap is not watched as %q: %+v", want, o)
		}
	}
}

func testOverheadQuietProgramProbedAllTime(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "windows.c"))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, Overhead: 0.03})
	awaitMode(t, s, overhead.HeapFull)
	awaitOpen(t, s)
	runOrders(target, "keep 1000 100", "churn 500 100", "drop 300")
	mustEstimate(t, snapshot(t, s), "kept_here", 700, 100, 1)
	if prices, err := s.Costs(); err != nil || prices.Entry <= 0 {
		t.Errorf("prices %+v, %v", prices, err)
	}
}

// awaitOpen waits until the governor has attached the probes.
func awaitOpen(t *testing.T, s *tracer.Session) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !tracer.Probing(s).IsOpen(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("no probe is open")
		}
	}
}

// Eight threads do nothing but allocate and free: probes on each call would make that a hundred times as slow. When they rest every call is
// probed again.
func testOverheadStormAllocationsLeftToBursts(t *testing.T) {
	t.Parallel()
	const limit = 0.03
	target := tracertest.Start(t, tracertest.Build(t, "leak.c", "-pthread"), "8", "1", "64", "2000000000")
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Overhead: limit, Sources: []string{"heap"}})
	awaitMode(t, s, overhead.HeapFull)
	target.Say("go")
	for s.Overhead().Mode == overhead.HeapFull {
		time.Sleep(time.Millisecond)
	}
	before := s.Overhead()
	for s.Overhead().Traced < before.Traced+20*time.Second { // of CPU time, on as many cores as there are
		time.Sleep(50 * time.Millisecond)
	}
	after := s.Overhead()
	if after.Mode == overhead.HeapFull || len(after.Changes) < 2 {
		t.Errorf("%+v", after)
	}
	if share := float64(after.InProbes-before.InProbes) / float64(after.Traced-before.Traced); share > 1.5*limit {
		t.Errorf("probes took %.1f %% of the CPU time after they had been closed, limit %v %%", 100*share, 100*limit)
	}
	signal(t, target, syscall.SIGSTOP)
	awaitMode(t, s, overhead.HeapFull)
	signal(t, target, syscall.SIGCONT)
	awaitMode(t, s, overhead.HeapBursts)
}

func signal(t *testing.T, target *tracertest.Target, s syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(target.PID(), s); err != nil {
		t.Fatal(err)
	}
}

func testOverheadCostsKnownOnlyUnderLimit(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "pair.c"))
	target.Await("ready")
	limited, free := open(t, tracer.Options{PID: target.PID(), Overhead: 0.03}), open(t, tracer.Options{PID: target.PID()})
	if prices, _ := limited.Costs(); prices.Entry <= 0 || prices.Stepped <= 0 || prices.Return <= 0 || prices.Fault <= 0 {
		t.Errorf("%+v", prices)
	}
	if prices, err := free.Costs(); prices != (calibrate.Costs{}) || err != nil {
		t.Errorf("%+v, %v", prices, err)
	}
}
