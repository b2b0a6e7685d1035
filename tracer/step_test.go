package tracer_test

import (
	"bytes"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestKernelSteps counts steps of training on every kernel.
func TestKernelSteps(t *testing.T) {
	t.Run("steps of all threads are exact", testKernelStepsStepsThreadsExact)
}

// TestSteps counts the calls of a step function.
func TestSteps(t *testing.T) {
	t.Run("library is loaded later", testStepsLibraryLoadedLater)
	t.Run("another process is not probed", testStepsAnotherProcessProbed)
	t.Run("each backward pass is a step", testStepsEachBackwardPass)
	t.Run("missing step function is reported", testStepsMissingStepFunction)
	t.Run("concurrent use", testStepsConcurrentUse)
	t.Run("below the shim few steps are events", testStepsEvents)
}

// passes is the library that testdata/stepper.c calls.
func passes(t testing.TB) string {
	return tracertest.Build(t, "passes.cc", "-shared", "-fPIC")
}

// startStepper starts a program that has the library from its start, or that can load it.
func startStepper(t *testing.T, flags ...string) *tracertest.Target {
	t.Helper()
	return start(t, tracertest.Build(t, "stepper.c", append([]string{"-pthread"}, flags...)...))
}

func linked(t *testing.T) []string { return []string{"-Wl,--no-as-needed", passes(t)} }

func call(target *tracertest.Target, threads, times int) {
	order(target, "call %d %d", threads, times)
}

// countSteps makes a counter beside the session's own and lets it find its library.
func countSteps(t *testing.T, s *tracer.Session, symbol string) *source.Steps {
	t.Helper()
	c := source.NewSteps(tracer.Kernel(s), s.Process, symbol)
	must(t, updateSteps(s, c))
	t.Cleanup(func() { must(t, c.Close()) })
	return c
}

// updateSteps shows a counter the mappings of the moment, as the unwinder does.
func updateSteps(s *tracer.Session, c *source.Steps) error {
	maps, err := s.Process.Maps()
	if err == nil {
		c.Update(maps)
	}
	return err
}

func mustCount(t *testing.T, c *source.Steps, want int64) {
	t.Helper()
	if got := c.Count(); got != want {
		t.Errorf("%d steps, want %d; %+v", got, want, c.Status())
	}
}

func testKernelStepsStepsThreadsExact(t *testing.T) {
	eachMode(t, func(t *testing.T, mode probe.Mode) {
		target, s := openOn(t, startStepper(t, linked(t)...), tracer.Options{Mode: mode})
		call(target, 3, 100)
		c := countSteps(t, s, "libpasses:training_step")
		mustCount(t, c, 0)
		call(target, 8, 1234)
		mustCount(t, c, 8*1234)
		mustLoseNothing(t, s)
	})
}

func testStepsLibraryLoadedLater(t *testing.T) {
	target, s := openOn(t, startStepper(t), tracer.Options{})

	c := countSteps(t, s, "libpasses.so:training_step")
	mustCount(t, c, growth.Unknown)
	order(target, "load %s", passes(t))
	must(t, updateSteps(s, c))

	mustCount(t, c, 0)
	call(target, 4, 50)
	mustCount(t, c, 200)
	if status := c.Status(); !status.Attached || status.Reason != "" ||
		!strings.Contains(status.Details[0], "training_step in "+passes(t)) {
		t.Errorf("after the library is there: %+v", status)
	}
}

func testStepsAnotherProcessProbed(t *testing.T) {
	target, other := startStepper(t, linked(t)...), startStepper(t, linked(t)...)
	s := open(t, tracer.Options{PID: target.PID()})

	before := codeOf(t, target.PID())
	c := countSteps(t, s, "libpasses:training_step")
	call(other, 2, 500)
	call(target, 2, 30)
	call(other, 2, 500)
	mustCount(t, c, 60)
	if bytes.Equal(codeOf(t, target.PID()), before) {
		t.Error("the library's code in the traced process is unchanged: the test is wrong")
	}

	if !bytes.Equal(codeOf(t, other.PID()), before) {
		t.Error("the library is probed in a process that is not traced")
	}
	must(t, c.Close())

	call(target, 1, 10)
	mustCount(t, c, growth.Unknown)
	if !bytes.Equal(codeOf(t, target.PID()), before) {
		t.Error("the library is probed after the counter has been closed")
	}
}

// codeOf reads the library's code from the memory of a process.
func codeOf(t *testing.T, pid int) []byte {
	t.Helper()
	p := openProcess(t, pid)
	for _, m := range mapsOf(t, pid) {
		if m.Execute && strings.HasSuffix(m.Path, "libpasses.so") {
			code := make([]byte, m.Len())
			must(t, p.ReadMemory(m.Start, code))
			return code
		}
	}
	t.Fatalf("pid %d has no code of libpasses.so", pid)
	return nil
}

func testStepsEachBackwardPass(t *testing.T) {
	target, s := openOn(t, start(t, python, tracertest.Source("backward.py")), tracer.Options{})

	// the session's own counter reads libtorch's symbols first
	eventually(t, "a library is found",
		func() bool { return s.Sample().Processes[0].Steps != growth.Unknown })
	var want int64
	for _, passes := range []int{0, 1, 7, 500} {
		target.Do(strconv.Itoa(passes))
		want += int64(passes)
		if got := s.Sample().Processes[0].Steps; got != want {
			t.Errorf("%d steps, want %d; %+v", got, want, s.Sources())
		}
	}
}

func testStepsMissingStepFunction(t *testing.T) {
	target, s := openOn(t, startStepper(t, linked(t)...), tracer.Options{})

	c := countSteps(t, s, "libpasses:no_such_step")
	call(target, 1, 5)
	mustCount(t, c, growth.Unknown)
	want := "find step function no_such_step in " + passes(t) + ": no such function"
	if status := c.Status(); status.Attached || !strings.Contains(status.Reason, want) {
		t.Errorf("%+v, want %q", status, want)
	}
}

// A counter is read while the unwinder finds the library and while the trace ends.
func testStepsConcurrentUse(t *testing.T) {
	_, s := openOn(t, startStepper(t, linked(t)...), tracer.Options{})

	for range 10 {
		c := countSteps(t, s, "libpasses:training_step")
		var users sync.WaitGroup
		for _, use := range []func(){
			func() { _ = updateSteps(s, c) }, func() { c.Count() },
			func() { c.Status() }, func() { _ = c.Close() },
		} {
			users.Go(func() {
				for range 20 {
					use()
				}
			})
		}

		users.Wait()
		mustCount(t, c, growth.Unknown)
	}
}

// Below the shim no burst is compared with the steps around it: ten events a second are enough.
func testStepsEvents(t *testing.T) {
	command := exec.Command(tracertest.Build(t, "stepper.c", append(linked(t), "-pthread")...))
	s, target := launch(t, command, tracer.Options{}, "ready")
	c := countSteps(t, s, "libpasses:training_step")

	const calls = 200
	events, last, began := 0, uint64(0), time.Now()
	for range calls {
		call(target, 1, 1)
		var steps bpf.StepCount
		must(t, tracer.Kernel(s).Steps.Lookup(uint32(target.PID()), &steps))
		if steps.Reported != last {
			events, last = events+1, steps.Reported
		}
		time.Sleep(2 * time.Millisecond)
	}
	mustCount(t, c, calls)
	if most := 1 + int(time.Since(began)/(100*time.Millisecond)); events > most {
		t.Errorf("%d of %d steps are events, want %d at most", events, calls, most)
	}
}
