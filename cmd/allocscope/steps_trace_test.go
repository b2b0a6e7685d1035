package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// startStepper starts a program that calls training_step() of a library as it is told.
func startStepper(t *testing.T) *tracertest.Target {
	t.Helper()
	library := tracertest.Build(t, "passes.cc", "-shared", "-fPIC")
	return ready(tracertest.Start(t, tracertest.Build(t, "stepper.c", "-pthread", "-Wl,--no-as-needed", library)))
}

func TestTheStepsOfATraceAreCountedExactly(t *testing.T) {
	const before, steps = 50, 4 * 250
	target := startStepper(t)
	do(target, "call 1 %d", before)
	c, dir := tracing(t, target, "--step-symbol", "libpasses:training_step", "--snapshot-every", "1s")
	c.await("the library is probed", func() bool {
		rows, _ := rows.ReadTimeline(strings.NewReader(readFile(t, dir, folder.TimelineFile))) // the last may be half written
		return slices.ContainsFunc(rows, countsSteps)
	})
	do(target, "call 4 100")
	c.awaitSnapshots(dir, 2)
	do(target, "call 4 150")
	c.awaitSnapshots(dir, 1)
	c.interrupt()
	s := mustHaveEnded(t, dir, summary.EndedInterrupt)
	if s.Steps == nil || s.Steps.Count != steps {
		t.Errorf("steps %+v since %v s, want %d since the start", s.Steps, *s.BaselineS, steps)
	}
	rows := readTimelineRows(t, dir)
	first := slices.IndexFunc(rows, countsSteps)
	if counted, last := rows[first].Steps, rows[len(rows)-1].Steps; counted != 0 || last != steps {
		t.Errorf("the timeline has %d to %d steps, want 0 to %d", counted, last, steps)
	}
	if len(s.Warnings) > 0 || strings.Contains(c.stderr.String(), "warn") {
		t.Errorf("warnings %q, stderr %q", s.Warnings, c.stderr.String())
	}
}

func countsSteps(r growth.Row) bool { return r.Steps != growth.Unknown }

func TestAStepFunctionThatIsNotThereIsWarnedOfAndTheTraceGoesOn(t *testing.T) {
	for symbol, why := range map[string]string{
		"libpasses:no_such_step": "no such function",
		"libmissing:step":        "no library libmissing is mapped",
	} {
		target := startStepper(t)
		c, dir := tracing(t, target, "--step-symbol", symbol, "--snapshot-every", "500ms")
		do(target, "call 1 10")
		c.awaitSnapshots(dir, 2)
		c.interrupt()
		s := mustHaveEnded(t, dir, summary.EndedInterrupt)
		if s.Steps != nil {
			t.Errorf("%s: steps %+v, though nobody counts them", symbol, s.Steps)
		}
		mustSay(t, "stdout", c.stdout.String(), "warning: source step: ", why)
	}
}

func TestAStepFunctionOfTheWrongFormIsRefused(t *testing.T) {
	pid := itoa(startSteps(t).PID())
	for _, symbol := range []string{"libpasses", "libpasses:", ":training_step"} {
		folder := newFolder(t)
		mustRefuse(t, allocscope(t, traceArguments(0, folder, "--pid", pid, "--step-symbol", symbol)...), folder, "--step-symbol", "LIB:SYMBOL")
	}
}
