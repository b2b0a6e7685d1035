package tracer_test

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// python is the distribution's, for which apt has torch.
const python = "/usr/bin/python3"

// A trainer is a real one: testdata/train.py with torch.
type trainer struct{ *tracertest.Target }

func startTrainer(t testing.TB, arguments ...string) trainer {
	t.Helper()
	tracertest.NeedsRoot(t)
	if out, err := exec.Command(python, "-c", "import torch").CombinedOutput(); err != nil {
		t.Fatalf("%s has no torch (apt-get install python3-torch): %v\n%s", python, err, out)
	}
	target := tracertest.Start(t, python, append([]string{tracertest.Source("train.py")}, arguments...)...)
	target.Await("ready")
	return trainer{target}
}

// train does so many steps, calls meanwhile while they are under way, and gives their losses.
func (g trainer) train(steps int, meanwhile func()) []string {
	g.Say(strconv.Itoa(steps))
	meanwhile()
	return g.Await("done")
}

func nothing() {}

func TestTheLossesOfATrainerAreTheSameToTheLastBitWhileItIsTraced(t *testing.T) {
	const before, traced, after = 40, 160, 40
	alone := startTrainer(t)
	want := alone.train(before+traced+after, nothing)
	alone.Hangup()

	watched := startTrainer(t)
	got := watched.train(before, nothing)
	s := open(t, tracer.Options{PID: watched.PID()})
	const snapshots = 8
	for range snapshots {
		got = append(got, watched.train(traced/snapshots, func() { snapshot(t, s) })...)
	}
	elapsed, events := s.Elapsed(), mustLoseNothing(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	got = append(got, watched.train(after, nothing)...)

	if len(want) != before+traced+after || !slices.Equal(got, want) {
		t.Errorf("losses differ from step %d on:\nalone   %s\ntraced  %s", firstDifference(got, want), strings.Join(want, " "), strings.Join(got, " "))
	}
	if s.Err() != nil {
		t.Errorf("the trace ended early: %v", s.Err())
	}
	pace := float64(events.Allocations) / elapsed.Seconds()
	t.Logf("%d allocations in %s, %.0f a second, %d samples", events.Allocations, elapsed, pace, events.Samples)
	if pace < 1000 {
		t.Errorf("%.0f allocations a second, want more than 1000", pace)
	}
}

// firstDifference is the first index at which two lists differ.
func firstDifference(a, b []string) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func BenchmarkATrainer(b *testing.B) {
	const warmup, steps = 50, 20
	trainer := startTrainer(b)
	trainer.train(warmup, nothing)
	ways := []way{opening("interval=512KiB", tracer.Options{}), opening("interval=1", tracer.Options{Interval: 1})}
	msPerStep := func() float64 {
		began := cpuTime(b, trainer.PID())
		trainer.train(steps, nothing)
		return float64((cpuTime(b, trainer.PID()) - began).Microseconds()) / 1000 / steps
	}
	report(b, ways, compare(b, ways, trainer.PID(), msPerStep), "ms-CPU/step", "")
}

// cpuTime of another process, user and kernel.
func cpuTime(b *testing.B, pid int) time.Duration {
	const cpuClockSched = 2 // CPUCLOCK_SCHED, include/linux/posix-timers_types.h
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|cpuClockSched), &now); err != nil {
		b.Fatalf("read CPU time of %d: %v", pid, err)
	}
	return time.Duration(now.Nano())
}

// children gives the processes that the main thread of a process has started.
func children(t *testing.T, pid int) (pids []int) {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range strings.Fields(string(raw)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, child)
	}
	return pids
}

func TestOfATrainerAndItsWorkersHardlyAStackIsCut(t *testing.T) {
	const workers, least, mostPerMille = 4, 100_000, 5
	target := startTrainer(t, strconv.Itoa(workers))
	target.train(40, nothing)
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
	target.train(60, nothing)
	for i, s := range sessions {
		n, bad := cutStacks(t, s)
		stacks += n
		cut += bad
		if events, _, err := s.Counters(); err != nil || events.Stacks == 0 {
			t.Errorf("no stack of process %d of %d was taken: %v", i, len(pids), err)
		}
	}
	t.Logf("%d of %d stacks are cut, besides %d before their tables were made", cut, stacks, before)
	if stacks < least || cut*1000 > mostPerMille*stacks {
		t.Errorf("%d of %d stacks are cut, want at most %d per mille of at least %d", cut, stacks, mostPerMille, least)
	}
}

// cutStacks gives how many stacks were taken, and how many of them are not whole.
func cutStacks(t *testing.T, s *tracer.Session) (all, cut uint64) {
	t.Helper()
	events, losses, err := s.Counters()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range losses {
		if strings.HasPrefix(l.Reason, "stacks ") {
			cut += l.Count
		}
	}
	return events.Stacks, cut
}
