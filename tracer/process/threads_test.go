package process

import (
	"fmt"
	"slices"
	"testing"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestThreads(t *testing.T) {
	path := tracertest.Build(t, "threads.c", "-pthread")
	target := tracertest.Start(t, path, "3", "1")
	locals := make(map[string]uint64)
	for _, line := range target.Await("ready") {
		var name string
		var local uint64
		tracertest.Must(fmt.Sscan(line, &name, &local))(t)
		locals[name] = local
	}

	var names []string
	for _, thread := range must(open(t, target.PID()).Threads()) {
		names = append(names, thread.Name)
		// A thread that waits does so not far below the function that has the local variable.
		distance := locals[thread.Name] - thread.StackPointer
		if thread.StackPointer != 0 && distance > 64<<10 || thread.InnerTID != thread.TID {
			t.Errorf("%+v, local variable at %#x", thread, locals[thread.Name])
		}
	}
	slices.Sort(names)
	want := []string{"first", "own0", "run0", "wait0", "wait1", "wait2"}
	if !slices.Equal(names, want) {
		t.Errorf("threads %q, want %q", names, want)
	}
}
