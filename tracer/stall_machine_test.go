//go:build machine

package tracer_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// machineHasFUSE is the variable that is set in a virtual machine whose kernel has FUSE.
const machineHasFUSE = "ALLOCSCOPE_MACHINE_HAS_FUSE"

// TestKernelStall traces programs whose memory, files or address space never answer. It can block
// fork(2) for a whole machine, so that only virtual ones run it. On this machine it builds the program.
func TestKernelStall(t *testing.T) {
	tracertest.Build(t, "stall.c", "-pthread", "-Wl,-z,now")
	tracertest.Build(t, "pair.c")
	if os.Getenv(machineHasFUSE) == "" {
		return
	}
	t.Run("list of libraries in a file that is never read", func(t *testing.T) {
		testStall(t, "links", "does not answer")
	})
	t.Run("code in a file that is never read", func(t *testing.T) { testStall(t, "code", "") })
	t.Run("locked address space", testStallLocked)
	t.Run("locked address space of another process", testStallBystander)
}

// startStall starts a program that waits for a file system of its own. release ends that, and so the
// waiting: killed, the program would wait on.
func startStall(t *testing.T, mode string) (target *tracertest.Target, release func()) {
	t.Helper()
	folder := tracertest.Must(os.MkdirTemp("", "stall-"))(t)
	release = func() {
		_ = syscall.Unmount(folder, syscall.MNT_FORCE)
		_ = os.Remove(folder)
	}
	t.Cleanup(release) // after the program's end
	target = tracertest.Start(t, tracertest.Build(t, "stall.c", "-pthread", "-Wl,-z,now"), mode, folder)
	target.Await("ready")
	return target, release
}

// within fails the test if a call has not returned after minutes.
func within[T any](t *testing.T, what string, call func() (T, error)) (T, error) {
	t.Helper()
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		value, err := call()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-time.After(8 * time.Minute):
		t.Fatalf("%s does not return", what)
		panic("not reached")
	}
}

func openWithin(t *testing.T, pid int) (*tracer.Session, error) {
	t.Helper()
	return within(t, "Open", func() (*tracer.Session, error) {
		return tracer.Open(context.Background(), tracer.Options{PID: pid, Interval: 1})
	})
}

func closeWithin(t *testing.T, s *tracer.Session) error {
	t.Helper()
	_, err := within(t, "Close", func() (any, error) { return nil, s.Close() })
	return err
}

// testStall traces a program of which some memory cannot be read. reason is a part of why source heap
// is not attached; "": it is.
func testStall(t *testing.T, mode, reason string) {
	target, _ := startStall(t, mode)
	s := tracertest.Must(openWithin(t, target.PID()))(t)
	if got := sourceOf(t, s, "heap").Reason; reason == "" && got != "" || !strings.Contains(got, reason) {
		t.Errorf("source heap: %q, want %q", got, reason)
	}
	within(t, "Follow", func() (any, error) { return s.Follow(), nil })
	if _, err := within(t, "Snapshot", func() (any, error) { return s.Snapshot() }); err != nil {
		t.Error(err)
	}
	must(t, closeWithin(t, s))
	if err := syscall.Kill(target.PID(), 0); err != nil {
		t.Errorf("the target: %v", err)
	}
}

func testStallLocked(t *testing.T) {
	target, _ := startStall(t, "locked")
	s, err := openWithin(t, target.PID())
	if !errors.Is(err, hostile.ErrStalled) {
		t.Errorf("Open: %v", err)
	}
	if err == nil {
		closeWithin(t, s)
	}
}

// Attaching to a library locks the address space of all processes that have mapped it. The trace of
// another process goes on without source heap.
func testStallBystander(t *testing.T) {
	_, release := startStall(t, "locked")
	target := startCommand(t, exec.Command(tracertest.Build(t, "pair.c"), "1000", "64"))
	s := tracertest.Must(openWithin(t, target.PID()))(t)
	if reason := sourceOf(t, s, "heap").Reason; !strings.Contains(reason, "address space locked") {
		t.Errorf("source heap: %q", reason)
	}
	if _, err := within(t, "Snapshot", func() (any, error) { return s.Snapshot() }); err != nil {
		t.Error(err)
	}

	release()
	must(t, closeWithin(t, s))
}
