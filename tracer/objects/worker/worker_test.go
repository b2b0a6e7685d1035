package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth/keeper"
	"github.com/allocscope/allocscope/tracer/objects"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// recordType is the type of the objects that testdata/kept_records.py keeps.
const recordType = "__main__.Record"

// A program is testdata/kept_records.py.
type program struct{ *tracertest.Target }

func start(t *testing.T) program {
	t.Helper()
	tracertest.NeedsRoot(t)
	p := program{tracertest.StartCommand(t,
		exec.Command("/usr/bin/python3", tracertest.Source("kept_records.py")))}
	p.Await("ready")
	return p
}

// do gives an order, and returns the numbers of the answer.
func (p program) do(t *testing.T, order string) (numbers []uint64) {
	t.Helper()
	p.Say(order)
	for _, line := range p.Await("done") {
		for field := range strings.FieldsSeq(line) {
			if n, err := strconv.ParseUint(field, 10, 64); err == nil {
				numbers = append(numbers, n)
			}
		}
	}

	return numbers
}

func newWorker(t *testing.T) *Worker {
	t.Helper()
	w := &Worker{}
	t.Cleanup(w.Close)
	return w
}

// census counts the objects of a program.
func census(t *testing.T, w *Worker, p program) *objects.Census {
	t.Helper()
	answer, err := w.Ask(t.Context(),
		Request{PID: p.PID(), Census: &objects.CensusOptions{Samples: 16}})
	tracertest.NoError(t, err)
	return answer.Census
}

func countOf(c *objects.Census, name string) uint64 {
	for _, of := range c.Types {
		if of.Type == name {
			return uint64(of.Count)
		}
	}
	return 0
}

func TestWorker(t *testing.T) {
	t.Run("counts and finds", testCountsAndFinds)
	t.Run("censuses in pairs", testPairs)
	t.Run("priority", testPriority)
	t.Run("busy CPUs", testBusyCPUs)
	t.Run("end of the context", testEndOfContext)
	t.Run("reader that hangs", testHangingReader)
	t.Run("child that is killed", testKilledChild)
	t.Run("processes that have ended", testForgetsEnded)
	t.Run("process without Python", testNoPython)
	t.Run("process that is gone", testGone)
}

func testCountsAndFinds(t *testing.T) {
	p, w := start(t), newWorker(t)
	p.do(t, "keep 2000")
	census(t, w, p)
	added := p.do(t, "keep 500")
	second := census(t, w, p)
	if got, want := countOf(second, recordType), p.do(t, "count")[0]; got != want {
		t.Errorf("%d records, want the %d of the garbage collector", got, want)
	}
	samples := second.Samples[recordType]
	for _, address := range samples {
		if !slices.Contains(added, address) {
			t.Errorf("sample %#x is not one that was added between the censuses", address)
		}
	}

	if len(samples) == 0 {
		t.Fatal("no samples")
	}

	answer, err := w.Ask(t.Context(), Request{
		PID: p.PID(), Limit: time.Minute,
		Suspects: []objects.Suspect{{Type: recordType, Objects: samples}},
	})
	tracertest.NoError(t, err)
	found := answer.Searches[0]
	if len(found.Paths) == 0 || found.Paths[0].Samples != len(samples) {
		t.Fatalf("%+v, want a path to all %d samples", found, len(samples))
	}
	root := found.Paths[0].Root
	if root.Kind != keeper.RootGlobal || root.Module != "__main__" || root.Name != "cache" {
		t.Errorf("root %+v, want the global cache of __main__", root)
	}
	if links := found.Paths[0].Links; links[0].Type != "dict" || links[0].Entries != 2500 {
		t.Errorf("links %+v, want a dict of 2500 entries first", links)
	}
	if w.CPUTime() < answer.CPUTime || answer.CPUTime <= 0 {
		t.Errorf("CPU time %s, and %s of the last answer", w.CPUTime(), answer.CPUTime)
	}
}

// A census of a share knows the growth since each earlier one of the same program.
func testPairs(t *testing.T) {
	p, w := start(t), newWorker(t)
	p.do(t, "keep 2000")
	var ids []uint64
	for _, program := range []uint64{1, 1, 1, 2} {
		answer, err := w.Ask(t.Context(), Request{
			PID: p.PID(), Program: program, Census: &objects.CensusOptions{Share: 0.5},
		})
		tracertest.NoError(t, err)
		var known []uint64
		for _, id := range ids {
			if _, ok := answer.Census.Paired[id]; ok {
				known = append(known, id)
			}
		}
		want := ids
		if program == 2 {
			want = nil
		}
		if !slices.Equal(known, want) {
			t.Errorf("program %d: paired with %d of %d", program, len(known), len(ids))
		}
		ids = append(ids, answer.Census.ID)
	}
}

// policies are how the threads of a process are scheduled.
func policies(t *testing.T, pid int) (all []uint32) {
	t.Helper()
	tasks := tracertest.Must(os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)))(t)
	for _, task := range tasks {
		tid := tracertest.Must(strconv.Atoi(task.Name()))(t)
		if attributes, err := unix.SchedGetAttr(tid, 0); err == nil { // else it has ended
			all = append(all, attributes.Policy)
		}
	}

	return all
}

// childrenOf are the processes that a process has started.
func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	files := tracertest.Must(filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)))(t)
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(raw)) {
			child := tracertest.Must(strconv.Atoi(field))(t)
			children = append(children, child)
		}
	}

	return children
}

// The child works at idle priority unless somebody waits. The process that reads for it never does.
func testPriority(t *testing.T) {
	p, w := start(t), newWorker(t)
	w.idleTimeout = time.Hour
	census(t, w, p)
	child := w.child.command.Process.Pid
	if !slices.Contains(policies(t, child), unix.SCHED_IDLE) {
		t.Error("no thread of the child has idle priority")
	}
	readers := childrenOf(t, child)
	if len(readers) != 1 {
		t.Fatalf("the child has the children %v, want the one that reads", readers)
	}
	if slices.Contains(policies(t, readers[0]), unix.SCHED_IDLE) {
		t.Error("what reads the process has idle priority")
	}

	w.Hurry()
	if slices.Contains(policies(t, child), unix.SCHED_IDLE) {
		t.Error("the child still has idle priority")
	}
	census(t, w, p)
	if slices.Contains(policies(t, child), unix.SCHED_IDLE) {
		t.Error("the child has idle priority while somebody waits")
	}
}

// A child that no CPU has time for does not wait for ever.
func testBusyCPUs(t *testing.T) {
	p, w := start(t), newWorker(t)
	w.idleTimeout = time.Hour
	census(t, w, p)
	child := w.child.command.Process
	w.idleTimeout = 10 * time.Millisecond
	tracertest.NoError(t, child.Signal(unix.SIGSTOP))
	go func() {
		for slices.Contains(policies(t, child.Pid), unix.SCHED_IDLE) && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
		_ = child.Signal(unix.SIGCONT)
	}()
	census(t, w, p)
}

// A child that does not answer is given up.
func testEndOfContext(t *testing.T) {
	p, w := start(t), newWorker(t)
	census(t, w, p)
	child := w.child.command.Process
	tracertest.NoError(t, child.Signal(unix.SIGSTOP))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := w.Ask(ctx, Request{PID: p.PID(), Census: &objects.CensusOptions{}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the end of the context", err)
	}

	before := w.CPUTime()
	if before <= 0 {
		t.Error("the CPU time of the child that was given up is lost")
	}
	if census(t, w, p); w.CPUTime() <= before {
		t.Error("the CPU time of the next child does not count")
	}
}

// The process that reads for the child may hang for ever, with the child's standard error.
func testHangingReader(t *testing.T) {
	p, w := start(t), newWorker(t)
	census(t, w, p)
	child := w.child.command.Process.Pid
	reader := childrenOf(t, child)[0]
	if session, err := unix.Getsid(reader); err != nil || session != reader { // else SIGHUP may end it
		t.Errorf("the reader is in session %d, want its own, %d: %v", session, reader, err)
	}
	tracertest.NoError(t, unix.Kill(reader, unix.SIGSTOP))
	defer func() { _ = unix.Kill(reader, unix.SIGKILL) }()

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := w.Ask(ctx, Request{PID: p.PID(), Census: &objects.CensusOptions{}})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want the end of the context", err)
	}
	if w.CPUTime() <= 0 {
		t.Error("the CPU time of the child that was given up is lost")
	}
	census(t, w, p)
	if policies(t, reader) == nil {
		t.Error("the reader has ended: nothing was tested")
	}
}

func testKilledChild(t *testing.T) {
	p, w := start(t), newWorker(t)
	census(t, w, p)
	tracertest.NoError(t, w.child.command.Process.Kill())
	_, err := w.Ask(t.Context(), Request{PID: p.PID(), Census: &objects.CensusOptions{}})
	if err == nil {
		t.Error("a killed child has answered")
	}
	census(t, w, p)
}

func testNoPython(t *testing.T) {
	target := tracertest.Start(t, tracertest.Build(t, "steps.c"))
	target.Await("ready")
	_, err := newWorker(t).Ask(t.Context(),
		Request{PID: target.PID(), Census: &objects.CensusOptions{}})
	if !errors.Is(err, objects.ErrNoPython) {
		t.Errorf("%v, want %v", err, objects.ErrNoPython)
	}
}

func testGone(t *testing.T) {
	command := exec.Command("/bin/true")
	tracertest.NoError(t, command.Run())
	_, err := newWorker(t).Ask(t.Context(),
		Request{PID: command.Process.Pid, Census: &objects.CensusOptions{}})
	if err == nil || errors.Is(err, objects.ErrNoPython) {
		t.Errorf("%v, want that there is no such process", err)
	}
}

func testForgetsEnded(t *testing.T) {
	command := exec.Command("/bin/true")
	tracertest.NoError(t, command.Run())
	firsts := map[int]firstCensus{os.Getpid(): {}, command.Process.Pid: {}}
	forgetEnded(firsts)
	if _, ok := firsts[os.Getpid()]; !ok || len(firsts) != 1 {
		t.Errorf("%d censuses are left, want that of the living process", len(firsts))
	}
}
