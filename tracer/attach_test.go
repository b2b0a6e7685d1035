package tracer_test

// Attaching to processes that go away, and many times: nothing is left of it.

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestAProcessWhosePIDIsAnothersByNowIsNotAttached(t *testing.T) {
	root, dies := startSteps(t), startSteps(t)
	s := open(t, tracer.Options{PID: root.PID(), Interval: 1})
	held, err := process.Open(dies.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	dies.Hangup()
	startForkWithPID(t, dies.PID())
	before := descriptors(t)
	if err := s.AttachHeld(held); err == nil || !strings.Contains(err.Error(), "exited") {
		t.Errorf("%v, want that it has exited", err)
	}
	if s.Targets() != 1 || descriptors(t) != before || len(entries(t, s, dies.PID())) != 0 {
		t.Errorf("%d targets, %d descriptors more, kernel has %v", s.Targets(), descriptors(t)-before, entries(t, s, dies.PID()))
	}
}

func descriptors(t testing.TB) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

// A process exits at some moment of an attach, a later one each time.
func TestAProcessThatExitsWhileItIsAttachedLeavesNothing(t *testing.T) {
	root := startSteps(t)
	s := open(t, tracer.Options{PID: root.PID(), Interval: 1})
	if err := s.Attach(startSteps(t).PID()); err != nil { // what is made once
		t.Fatal(err)
	}
	s.AwaitTables()
	const rounds, step = 30, 3 * time.Millisecond
	before, failed := descriptors(t), 0
	for i := range rounds {
		pid, err := attachDying(t, s, time.Duration(i)*step)
		if err != nil {
			failed++
			mustBeGone(t, err)
		}
		eventually(t, "the end is noticed", func() bool { return !s.IsTraced(pid) })
		s.RetireEnded()
		if left := entries(t, s, pid); len(left) != 0 {
			t.Errorf("after %v the kernel still has %v", time.Duration(i)*step, left)
		}
	}
	if failed == 0 {
		t.Error("no attach has failed: the test is wrong")
	}
	if more := descriptors(t) - before; more > 0 {
		t.Errorf("%d descriptors are left", more)
	}
	if s.Targets() != 2 {
		t.Errorf("%d targets, want 2", s.Targets())
	}
}

// attachDying attaches to a process that is killed so long after the attach has begun, or at its end.
func attachDying(t testing.TB, s *tracer.Session, after time.Duration) (pid int, err error) {
	t.Helper()
	target := exec.Command(tracertest.Build(t, "steps.c"))
	input, err := target.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := target.Start(); err != nil {
		t.Fatal(err)
	}
	held, err := process.Open(target.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	killer := time.AfterFunc(after, func() { target.Process.Kill() })
	err = s.AttachHeld(held)
	killer.Stop()
	held.Close()
	target.Process.Kill()
	input.Close()
	target.Wait()
	return target.Process.Pid, err
}

// mustBeGone wants that an error is about the end of a process, or about its being too young.
func mustBeGone(t testing.TB, err error) {
	t.Helper()
	gone := []error{tracer.ErrExited, process.ErrNotFound, process.ErrZombie, process.ErrKernelThread}
	if !slices.ContainsFunc(gone, func(known error) bool { return errors.Is(err, known) }) && !errors.Is(err, tracer.ErrNoSource) &&
		!strings.Contains(err.Error(), "executed another program") {
		t.Errorf("%v", err)
	}
}

func TestAttachingAndDetachingFiftyTimesLeavesNothing(t *testing.T) {
	root, target := startSteps(t), startSteps(t)
	s := open(t, tracer.Options{PID: root.PID(), Interval: 1})
	round := func() {
		if err := s.Attach(target.PID()); err != nil {
			t.Fatal(err)
		}
		order(target, "hold 100 64")
		order(target, "drop")
		if err := s.Detach(target.PID()); err != nil {
			t.Fatal(err)
		}
	}
	round()
	s.AwaitTables()
	fds, goroutines, rss := descriptors(t), runtime.NumGoroutine(), resident(t)
	for range 50 {
		round()
	}
	if more := descriptors(t) - fds; more > 0 {
		t.Errorf("%d descriptors are left", more)
	}
	if more := runtime.NumGoroutine() - goroutines; more > 0 {
		t.Errorf("%d goroutines are left", more)
	}
	if more := resident(t) - rss; more > 16<<20 {
		t.Errorf("%d MiB of memory are left", more>>20)
	}
	if left := entries(t, s, target.PID()); len(left) != 0 {
		t.Errorf("the kernel still has %v", left)
	}
	order(target, "hold 100 64") // it works as before
	mustLoseNothing(t, s)
}

// A process stops at the start of a program: its linker has not run yet.
func TestAProcessThatIsAttachedWhileItIsBeingLoadedGetsItsHeapLater(t *testing.T) {
	runtime.LockOSThread() // the tracer is this thread
	defer runtime.UnlockOSThread()
	command := exec.Command(tracertest.Build(t, "steps.c"))
	command.SysProcAttr = &syscall.SysProcAttr{Ptrace: true}
	target := tracertest.StartCommand(t, command)
	if _, err := unix.Wait4(target.PID(), nil, 0, nil); err != nil {
		t.Fatal(err)
	}
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	if isAttached(s, "heap") {
		t.Fatal("there is an allocator already: the test is wrong")
	}
	if err := unix.PtraceDetach(target.PID()); err != nil {
		t.Fatal(err)
	}
	target.Await("ready")
	s.Follow()
	if !isAttached(s, "heap") {
		t.Errorf("%+v", s.Sources())
	}
	order(target, "leak 300 96")
	mustHold(t, held(snapshot(t, s)), []string{"leak_here 300 28800"})
}

func isAttached(s *tracer.Session, name string) bool {
	return slices.ContainsFunc(s.Sources(), func(source source.Status) bool { return source.Name == name && source.Attached })
}

func TestAProgramThatIsExecutedWhileItsProcessIsAttachedIsNotTakenForTheOneBefore(t *testing.T) {
	root, target := startSteps(t), startSteps(t)
	s := open(t, tracer.Options{PID: root.PID(), Interval: 1})
	err := s.AttachAround(target.PID(), func() {
		target.Say("exec " + target.Path)
		target.Await("ready")
	})
	if err == nil || !strings.Contains(err.Error(), "executed another program") {
		t.Errorf("%v", err)
	}
	if left := entries(t, s, target.PID()); len(left) != 0 {
		t.Errorf("the kernel still has %v", left)
	}
}

func TestASessionOfSeveralProcessesLeavesNothing(t *testing.T) {
	j := startJob(t, 3)
	mustLeaveNothing(t, func() {
		s := openEventually(t, tracer.Options{PID: j.PID(), Interval: 1, Children: true})
		for _, r := range j.ranks {
			followUntilTraced(t, s, r.pid)
			r.order("leak 100 64")
		}
		snapshot(t, s)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}

func resident(t testing.TB) int64 {
	t.Helper()
	self, err := process.Open(unix.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	sample, err := self.Sample()
	if err != nil {
		t.Fatal(err)
	}
	return sample.RSS
}
