package tracer_test

import (
	"os/exec"
	"testing"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/claim"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestShare has processes that flood the tables that a session's targets share.
func TestShare(t *testing.T) {
	t.Run("one of several loses its own objects", testShareObjects)
	t.Run("a program starts once", testShareStarts)
	t.Run("not of the command", testShareStranger)
	t.Run("a storm of starts", testShareStorm)
	t.Run("stacks that are reported again", testShareStacks)
}

// launchFlood starts testdata/flood.c below the shim, with the child as the other target.
func launchFlood(t *testing.T, maxLive int) (*tracer.Session, *tracertest.Target) {
	t.Helper()
	return launchFloodBy(t, tracer.Options{Interval: 1, MaxLive: maxLive})
}

func launchFloodBy(t *testing.T, options tracer.Options) (*tracer.Session, *tracertest.Target) {
	t.Helper()
	command := exec.Command(tracertest.Build(t, "flood.c"))
	s, target := launch(t, command, options, "ready")
	eventually(t, "both processes are traced", func() bool {
		traced := 0
		err := kernel.ReadMap(tracer.Kernel(s).Targets, func(_ *uint32, state *bpf.TargetState) {
			if *state == bpf.TargetTraced {
				traced++
			}
		})
		return err == nil && traced == 2
	})
	return s, target
}

func testShareObjects(t *testing.T) {
	const maxLive, flood, kept = 8192, 50_000, 3000 // kept is over the room that the flood leaves
	s, target := launchFlood(t, maxLive)
	order(target, "flood %d", flood)
	order(target, "keep %d", 1000) // within the part that is not open to the flood
	of := heldBelowShim(snapshot(t, s))
	mustHoldIn(t, of, "case_keep", 1000, 96_000)
	if got := of["case_flood"][0]; got < maxLive/2 || got > maxLive {
		t.Errorf("the flood holds %d objects, want %d to %d", got, maxLive/2, maxLive)
	}

	_, losses := counters(t, s)
	var lost growth.Loss
	for _, l := range losses {
		if l.Kind != growth.LossLiveFull {
			continue
		}
		if l.PID == target.PID() || l.PID == 0 || lost.PID != 0 {
			t.Errorf("lost by another process than the flood: %+v", l)
		}
		lost = l
	}
	if got := uint64(of["case_flood"][0]) + lost.Count; got != flood || lost.Bytes != 48*lost.Count {
		t.Errorf("the flood has and has lost %d of %d objects: %+v", got, flood, lost)
	}
}

// mustLoseNoEvents checks that nothing has filled the ring buffer, or the queue of starts.
func mustLoseNoEvents(t *testing.T, s *tracer.Session) {
	t.Helper()
	events, starts := lossOf(t, s, growth.LossEvents), lossOf(t, s, growth.LossProcesses)
	if events+starts != 0 {
		t.Errorf("lost: %d events, %d processes", events, starts)
	}
}

// A million reports of a program are one event: the first.
func testShareStarts(t *testing.T) {
	s, target := launchFlood(t, 8192)
	order(target, "start 1000000 %x", symbolAt(t, target.PID(), "allocscope_start"))
	mustLoseNoEvents(t, s)
}

// A process that does not descend from the command uses the shim: it is no target, and its calls
// are not the command's.
func testShareStranger(t *testing.T) {
	program := tracertest.Build(t, "flood.c")
	stranger := tracertest.Start(t, "/bin/sh", "-c",
		"read shim; LD_PRELOAD=$shim exec "+program) // it is there before the command is
	s, target := launchFlood(t, 8192)
	calls := counted(t, s, bpf.CountProducerCalls)

	stranger.Say(s.Options.Launch.Shim.Name())
	stranger.Await("ready")
	stranger.Do("keep 20000", "flood 20000")
	order(stranger, "start 1000000 %x", symbolAt(t, stranger.PID(), "allocscope_start"))
	mustLoseNoEvents(t, s)
	if got := counted(t, s, bpf.CountProducerCalls) - calls; got > 100 { // the command's own, if any
		t.Errorf("%d calls of a stranger are charged", got)
	}

	target.Do("keep 1000")
	mustHoldIn(t, heldBelowShim(snapshot(t, s)), "case_keep", 1000, 96_000)
	if n := len(tracer.Targets(s)); n != 2 {
		t.Errorf("%d targets, want the command and its child", n)
	}
}

// A target that starts thousands of programs loses nothing of others.
func testShareStorm(t *testing.T) {
	s, target := launchFlood(t, 8192)
	tracer.FillStarts(s)
	_, losses := counters(t, s)
	if lossOf(t, s, growth.LossProcesses) == 0 {
		t.Errorf("no process is missing in %+v", losses)
	}
	if loss, ok := claim.May(claim.EveryCall, target.PID(), losses); !ok {
		t.Errorf("the command has lost %+v", loss)
	}
}

// The BPF programs remember the stacks that they have reported, also after so many that all of them
// were forgotten, and after the flood has ended.
func testShareStacks(t *testing.T) {
	const maxStacks, flood, few, times = 2048, 20_000, 100, 20
	s, target := launchFloodBy(t, tracer.Options{
		Interval: 1, MaxLive: 2 * flood, MaxStacks: maxStacks,
	})
	order(target, "flood %d", flood)
	tracer.Flush(s)

	before := counted(t, s, bpf.CountNewStacks)
	for range times {
		order(target, "flood %d", few)
		tracer.Flush(s)
	}
	if got := counted(t, s, bpf.CountNewStacks) - before; got > 4*few {
		t.Errorf("%d stacks were reported %d times", few, got)
	}
}
