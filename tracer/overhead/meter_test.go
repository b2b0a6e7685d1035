package overhead_test

import (
	"sync"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMeter(t *testing.T) {
	tracertest.NeedsRoot(t)
	k, err := load(probe.Automatic)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer k.Close()

	used := map[any]overhead.Usage{}
	var reading sync.Mutex
	m := overhead.NewMeter(
		k, &reading, func() time.Duration { return 0 },
		func() map[any]overhead.Usage { return used },
		func() bool { return false }, func() float64 { return 0 }, func() []controller.Step { return nil },
		process.OwnCPUTime,
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
}
