package tracer_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	tracertest.Cleanup()
	os.Exit(code)
}

// open starts a trace that ends with the test. Stacks are whole from the start.
func open(t testing.TB, options tracer.Options) *tracer.Session {
	t.Helper()
	tracertest.NeedsRoot(t)
	s, err := tracer.Open(t.Context(), options)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	s.AwaitTables()
	return s
}

func snapshot(t testing.TB, s *tracer.Session) *growth.Snapshot {
	t.Helper()
	snapshot, err := s.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	return snapshot
}

// held is what the callers of the allocator hold, by function: objects and bytes.
func held(snapshot *growth.Snapshot) map[string][2]int64 {
	sums := make(map[string][2]int64)
	for _, h := range snapshot.Holdings {
		if h.Kind != growth.KindHeap || h.InuseObjects == 0 {
			continue
		}
		name := "?"
		if len(h.Stack.Frames) > 1 {
			name = h.Stack.Frames[1].Function
		}
		sum := sums[name]
		sums[name] = [2]int64{sum[0] + int64(h.InuseObjects), sum[1] + h.InuseBytes}
	}
	return sums
}

// mustHold compares with what semantics.c says it holds: lines of NAME OBJECTS BYTES. Its other functions hold nothing.
func mustHold(t testing.TB, got map[string][2]int64, truth []string) {
	t.Helper()
	for _, line := range truth {
		var name string
		var want [2]int64
		if _, err := fmt.Sscan(line, &name, &want[0], &want[1]); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got[name] != want {
			t.Errorf("%s holds %d, want %d (objects, bytes)", name, got[name], want)
		}
		delete(got, name)
	}
	for name, holds := range got {
		if strings.HasPrefix(name, "case_") || strings.HasPrefix(name, "base_") {
			t.Errorf("%s holds %d, want nothing", name, holds)
		}
	}
}

// mustLoseNothing fails if the trace has lost anything.
func mustLoseNothing(t testing.TB, s *tracer.Session) tracer.Events {
	t.Helper()
	events, losses, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range losses {
		t.Errorf("lost: %d %s", l.Count, l.Reason)
	}
	return events
}

var modes = []probe.Mode{probe.Session, probe.Multi, probe.Single}
