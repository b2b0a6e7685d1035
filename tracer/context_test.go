package tracer_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A countedContext cancels itself when it is asked for its error for the last of so many times.
type countedContext struct {
	context.Context
	cancel context.CancelFunc
	checks atomic.Int32 // left before it cancels itself
}

func (c *countedContext) Err() error {
	if c.checks.Add(-1) == 0 {
		c.cancel()
	}
	return c.Context.Err()
}

// TestOpen cancels the context at each check of Open, one after the other, until Open makes none
// any more.
func TestOpen(t *testing.T) {
	tracertest.NeedsRoot(t)
	target := startSteps(t)
	s, err := tracer.Open(t.Context(), tracer.Options{PID: target.PID()}) // starts the child processes
	must(t, err)
	must(t, s.Close())
	for name, limit := range map[string]float64{
		"cancelled":                        0,
		"cancelled with an overhead limit": 0.05,
	} {
		t.Run(name, func(t *testing.T) {
			options := tracer.Options{PID: target.PID(), Overhead: limit}
			const mostChecks = 50
			for check := int32(1); check <= mostChecks; check++ {
				if openCancelled(t, options, check) {
					return
				}
			}
			t.Fatalf("Open makes more than %d checks", mostChecks)
		})
	}
}

// openCancelled cancels Open at one of its checks. It reports whether Open has succeeded, with
// fewer checks.
func openCancelled(t *testing.T, options tracer.Options, check int32) bool {
	t.Helper()
	before := descriptors(t)
	ctx := &countedContext{}
	ctx.Context, ctx.cancel = context.WithCancel(t.Context())
	defer ctx.cancel()
	ctx.checks.Store(check)

	s, err := tracer.Open(ctx, options)
	if err == nil {
		if check < 4 {
			t.Errorf("Open checks its context %d times only", check-1)
		}
		must(t, s.Close())

		return true
	}

	if s != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("check %d: session %v, error %v, want %v alone", check, s, err, context.Canceled)
	}
	if left := breakpoints(t, options.PID); len(left) != 0 {
		t.Errorf("check %d: breakpoints are left: %v", check, left)
	}
	if more := settledDescriptors(t) - before; more > 0 {
		t.Errorf("check %d: %d descriptors are left", check, more)
	}
	return false
}

// TestOpenLargeLibraries cancels Open while it reads symbols of libraries, of which a process can map
// any number.
func TestOpenLargeLibraries(t *testing.T) {
	tracertest.NeedsRoot(t)
	const size, count, enough, most = 128 << 20, 64, 2 << 30, 8 << 30
	folder := t.TempDir()
	var libraries []string
	for i := range count {
		path := filepath.Join(folder, fmt.Sprintf("libc10.so.%d", i)) // each is read for tensors
		tracertest.BuildInflated(t, path, size)
		libraries = append(libraries, path)
	}
	target := startCommand(t, preloading(strings.Join(libraries, ":"),
		exec.Command(tracertest.Build(t, "leak.c", "-pthread"))))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	before := tracertest.BytesRead(t)
	done := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for tracertest.BytesRead(t)-before < enough {
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
		cancel()
	})

	s, err := tracer.Open(ctx, tracer.Options{PID: target.PID()})
	close(done)
	watcher.Wait()
	if s != nil {
		s.Close()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	if got := tracertest.BytesRead(t) - before; got > most {
		t.Errorf("%d MiB were read, want %d at most", got>>20, most>>20)
	}
}
