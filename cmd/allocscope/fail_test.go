package main

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// fastTrace are the flags of a trace of a process that lives so many times as fast as others.
func fastTrace(t *testing.T, pid int, pace float64, duration time.Duration) traceFlags {
	t.Helper()
	return traceFlags{
		pid: pid, duration: durationValue(duration), interval: 64 << 10, maxLive: 1 << 16, native: nativeOutside,
		output: newFolder(t), pace: pace,
	}
}

// judgeUntil traces as the flags say until the context ends. The error is that of the command; the files are there in any case.
func judgeUntil(ctx context.Context, t *testing.T, flags traceFlags) (verdictOn, error) {
	t.Helper()
	tracertest.NeedsRoot(t)
	command := newTraceCommand()
	var stdout, stderr bytes.Buffer
	command.SetOut(&stdout)
	command.SetErr(&stderr)
	command.SetContext(ctx)
	err := runTrace(command, flags)
	t.Logf("%s\n%s", stderr.String(), stdout.String())
	for _, name := range []string{export.GrowthFile, export.WarmupFile, export.PlateauFile} {
		readProfile(t, flags.output, name)
	}
	return verdictOn{readSummary(t, flags.output), flags.output, stdout.String()}, err
}

// mustFailOn traces a job with --fail-on and wants a class, which is a failure or not.
func mustFailOn(t *testing.T, job []string, pace float64, duration time.Duration, on failOnValue, class growth.Class, fails bool) {
	t.Helper()
	flags := fastTrace(t, startJob(t, job...).PID(), pace, duration)
	flags.failOn = on
	v, err := judgeUntil(t.Context(), t, flags)
	v.mustBe(t, class)
	var wanted *finding
	if errors.As(err, &wanted) != fails || (err != nil) != fails {
		t.Fatalf("--fail-on %s of a %s: %v", on, class, err)
	}
	if fails {
		mustSay(t, "the error", err.Error(), "the verdict is "+string(class), "--fail-on "+string(on))
	}
}

func TestALeakFailsATraceThatIsToFailOnLeaks(t *testing.T) {
	t.Parallel()
	mustFailOn(t, []string{"fill=50", "leak=256"}, 600, 8*time.Second, "leak", growth.ClassLeak, true)
}

func TestWhatMayBeALeakFailsATraceThatIsToFailOnThatAndNoOther(t *testing.T) {
	for on, fails := range map[failOnValue]bool{"suspected": true, "leak": false} {
		t.Run(string(on), func(t *testing.T) {
			t.Parallel()
			mustFailOn(t, []string{"warmup=3", filling, steps, leak}, 60, 11*time.Second, on, growth.ClassSuspected, fails)
		})
	}
}

// No other job may grow beside it: it would be said to be the one that should be traced.
func TestAPlateauFailsNoTrace(t *testing.T) {
	mustFailOn(t, []string{filling}, 600, 3*time.Second, "suspected", growth.ClassPlateau, false)
}
