package tracer_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestTrainer traces a real PyTorch trainer.
func TestTrainer(t *testing.T) {
	t.Run("losses are the same to the last bit", testTrainerLossesSameLast)
	t.Run("hardly a stack is truncated", testTrainerHardlyStackTruncated)
}

func testTrainerLossesSameLast(t *testing.T) {
	const before, traced, after = 20, 80, 20
	alone := startTrainer(t)
	want := alone.train(before+traced+after, nothing)
	alone.Hangup()

	another := startTrainer(t)
	got := another.train(before, nothing)
	s := open(t, tracer.Options{PID: another.PID()})

	const snapshots = 8
	for range snapshots {
		got = append(got, another.train(traced/snapshots, func() { snapshot(t, s) })...)
	}

	events := mustLoseNothing(t, s)
	must(t, s.Close())

	got = append(got, another.train(after, nothing)...)

	if len(want) != before+traced+after || !slices.Equal(got, want) {
		t.Errorf("losses differ:\nalone   %q\ntraced  %q", want, got)
	}
	if s.Err() != nil {
		t.Errorf("the trace ended early: %v", s.Err())
	}
	if events.Allocations < traced || events.Samples == 0 {
		t.Errorf("%+v: the trainer was hardly traced", events)
	}
}

// children returns the processes that the main thread of a process has started.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	raw := tracertest.Must(os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid)))(t)

	for _, field := range strings.Fields(string(raw)) {
		child := tracertest.Must(strconv.Atoi(field))(t)

		pids = append(pids, child)
	}
	return pids
}

func testTrainerHardlyStackTruncated(t *testing.T) {
	const workers, least, mostPerMille = 1, 30_000, 5
	target := startTrainer(t, strconv.Itoa(workers))
	target.train(10, nothing)
	pids := append(children(t, target.PID()), target.PID())
	if len(pids) != workers+1 {
		t.Fatalf("%d workers, want %d", len(pids)-1, workers)
	}

	var sessions []*tracer.Session
	for _, pid := range pids {
		sessions = append(sessions, open(t, tracer.Options{PID: pid, Interval: 1}))
	}

	var before, stacks, cut uint64
	for _, s := range sessions {
		n, bad := cutStacks(t, s)
		before += bad
		stacks -= n
		cut -= bad
	}

	target.train(20, nothing)
	for i, s := range sessions {
		n, bad := cutStacks(t, s)
		stacks += n
		cut += bad
		if events, _, err := s.Counters(); err != nil || events.Stacks == 0 {
			t.Errorf("no stack of process %d of %d was taken: %v", i, len(pids), err)
		}
	}

	t.Logf("%d of %d stacks are truncated, besides %d before their tables were made", cut, stacks,
		before)
	if stacks < least || cut*1000 > mostPerMille*stacks {
		t.Errorf("%d of %d stacks are truncated, want at most %d per mille of at least %d", cut,
			stacks, mostPerMille, least)
	}
}
