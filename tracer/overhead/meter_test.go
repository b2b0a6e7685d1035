package overhead_test

import (
	"sync"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMeter(t *testing.T) {
	tracertest.NeedsRoot(t)
	k, err := load(probe.Automatic, false)
	tracertest.NoError(t, err)
	defer k.Close()

	used := map[any]overhead.Usage{}
	var reading sync.Mutex
	var elapsed, own time.Duration
	isBusy := true
	m := overhead.NewMeter(
		k, &reading, func() time.Duration { return elapsed },
		func() map[any]overhead.Usage { return used },
		func() bool { return isBusy }, func() float64 { return 0 }, func() []controller.Step { return nil },
		func() time.Duration { return own },
	)
	for _, step := range []struct {
		name   string
		used   map[any]overhead.Usage
		traced time.Duration // CPU time of all targets so far
	}{
		{"two new targets", map[any]overhead.Usage{"a": {CPU: 5}, "b": {CPU: 70}}, 0},
		{"both have run", map[any]overhead.Usage{"a": {CPU: 8}, "b": {CPU: 71}}, 4},
		{"ended target is forgotten", map[any]overhead.Usage{"a": {CPU: 9}}, 5},
		{"and starts again", map[any]overhead.Usage{"a": {CPU: 9}, "b": {CPU: 90}}, 5},
	} {
		used = step.used
		got := tracertest.Must(m.Read())(t)
		if got.Traced != step.traced || len(m.Targets) != len(step.used) {
			t.Errorf("%s: %v traced, %d targets, want %v and %d",
				step.name, got.Traced, len(m.Targets), step.traced, len(step.used))
		}
	}

	for _, step := range []struct {
		name                   string
		at                     time.Duration
		busy                   bool
		own, start, afterStart time.Duration
	}{
		{"tables are made", 9 * time.Second, true, 7, 7, 0},
		{"early", time.Second, false, 8, 8, 0},
		{"started", 10 * time.Second, false, 10, 8, 2},
		{"tables of a new library", 11 * time.Second, true, 15, 8, 7},
	} {
		elapsed, isBusy, own = step.at, step.busy, step.own
		got := tracertest.Must(m.Read())(t)
		start := overhead.OwnOf(m).Start
		if start != step.start || got.Own != step.afterStart {
			t.Errorf("%s: %v for the start, %v after it; want %v and %v",
				step.name, start, got.Own, step.start, step.afterStart)
		}
	}

	overhead.AddStart(m, 2) // of the 7 that were counted
	if all := overhead.OwnOf(m); all != (overhead.OwnCPU{Start: 10, Own: 5}) {
		t.Errorf("after the start of a target: %+v", all)
	}

	overhead.End(m)
	own = 40
	got := tracertest.Must(m.Read())(t)
	want := overhead.OwnCPU{Start: 10, Own: 5, End: 25}
	if all := overhead.OwnOf(m); got.Own != 5 || all != want {
		t.Errorf("at the end: %v while it traces, in all %+v", got.Own, all)
	}
}
