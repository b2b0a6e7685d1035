package tracer_test

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestObjects counts and searches in a traced process, beside the session's other work.
func TestObjects(t *testing.T) {
	t.Run("who keeps what a stack has allocated", testObjectsOfStack)
	t.Run("process without Python", testObjectsWithoutPython)
}

func testObjectsOfStack(t *testing.T) {
	t.Parallel()
	target := startCommand(t,
		exec.Command("/usr/bin/python3", tracertest.Source("kept_records.py")))
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, Sources: []string{"heap"}})
	order(target, "keep 100")
	from := s.Elapsed()
	order(target, "keep 300")
	to := s.Elapsed()
	order(target, "keep 200")

	// The payloads are those of 5000 bytes.
	var stack *growth.Stack
	for _, h := range snapshot(t, s).Holdings {
		if h.InuseObjects == 600 && h.InuseBytes > 600*5000 && slices.Contains(functions(h.Stack), "keep") {
			stack = h.Stack
		}
	}
	if stack == nil {
		t.Fatal("no stack holds the payloads")
	}

	counted, err := s.Census(t.Context(), tracer.CensusOptions{Samples: 4})
	if err != nil || len(counted) != 1 || counted[0].PID != target.PID() {
		t.Fatalf("%v, %v: want the census of one process", counted, err)
	}
	for _, c := range counted[0].Types {
		if c.Type == "__main__.Record" && c.Count != 600 {
			t.Errorf("%v records, want 600", c.Count)
		}
	}

	found, err := s.Search(t.Context(), tracer.KeeperSearch{
		PID: target.PID(), Stacks: [][]uint64{{1}, {2, stack.ID}}, From: from, To: to,
		MaxSamples: 1000, Limit: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	// The first suspect has no objects. Of the second, 300 were allocated between the two moments.
	if len(found) != 1 || found[0].Stack != 2 || found[0].Samples == 0 || found[0].Samples > 300 {
		t.Fatalf("%+v, want one search of up to 300 samples", found)
	}
	if len(found[0].Paths) == 0 {
		t.Fatalf("%+v, want a path", found[0])
	}
	root := found[0].Paths[0].Root
	if root.Kind != keeper.RootGlobal || root.Module != "__main__" || root.Name != "cache" {
		t.Errorf("root %+v, want the global cache of __main__", root)
	}
	if s.ObjectsCPUTime() <= 0 {
		t.Error("it has cost no CPU time")
	}
}

func testObjectsWithoutPython(t *testing.T) {
	t.Parallel()
	target := startSteps(t)
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, Sources: []string{"heap"}})
	if counted, err := s.Census(t.Context(), tracer.CensusOptions{}); err != nil || len(counted) > 0 {
		t.Errorf("%v, %v: want neither a census nor an error", counted, err)
	}
}
