package tracer_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

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
		if err := s.Close(); err != nil {
			t.Error(err)
		}

		return true
	}

	if s != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("check %d: session %v, error %v, want %v alone", check, s, err, context.Canceled)
	}
	if left := breakpoints(t, options.PID); len(left) != 0 {
		t.Errorf("check %d: breakpoints are left: %v", check, left)
	}
	if more := descriptors(t) - before; more > 0 {
		t.Errorf("check %d: %d descriptors are left", check, more)
	}
	return false
}
