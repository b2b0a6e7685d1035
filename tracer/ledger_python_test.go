package tracer_test

// The ledger of a Python program.

import (
	"testing"

	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestPythonsSmallObjectsAreARowAndItsBuffersAnother(t *testing.T) {
	target := tracertest.Start(t, python, tracertest.Source("ledger.py"))
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1})
	facts := do(t, target, "small")
	mustTell(t, balanced(t, s), target.PID(), facts)
	facts = append(facts, do(t, target, "bytes")...)
	mustTell(t, balanced(t, s), target.PID(), facts)
}
