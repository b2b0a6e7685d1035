package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// fastTrace are the flags of a trace of a process that lives so many times as fast as others.
func fastTrace(t *testing.T, pid int, pace float64, duration time.Duration) traceFlags {
	t.Helper()
	return traceFlags{
		pid: pid, duration: durationValue(duration), interval: 64 << 10, maxLive: 1 << 16, native: nativeOutside,
		sources: source.Names(), output: newFolder(t), pace: pace,
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
	t.Logf("%v\n%s\n%s", err, stderr.String(), stdout.String())
	for _, name := range []string{folder.GrowthFile, folder.WarmupFile, folder.PlateauFile} {
		readProfile(t, flags.output, name)
	}
	return verdictOn{readSummary(t, flags.output), flags.output, stdout.String()}, err
}

// beginWith tells a job that waits to begin once a trace has taken its first snapshot. The caller ends the waiting.
func beginWith(t *testing.T, job *tracertest.Target, flags traceFlags) (end func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var waiting sync.WaitGroup
	waiting.Go(func() {
		for !exists(filepath.Join(flags.output, folder.SnapshotFile(0))) && ctx.Err() == nil {
			time.Sleep(2 * time.Millisecond)
		}
		job.Say("begin")
	})
	return func() {
		cancel()
		waiting.Wait()
	}
}

// startFullJob runs a job that has filled its cache of so many MiB.
func startFullJob(t *testing.T, mib int64, settings ...string) *tracertest.Target {
	t.Helper()
	job := startJob(t, append(settings, fmt.Sprintf("fill=%d", mib))...)
	eventually(t, "the job is full", func() bool { return rssOf(t, job.PID()) > mib<<20 })
	return job
}

// mustFailOn traces with --fail-on and wants a class, which is a failure or not.
func mustFailOn(t *testing.T, flags traceFlags, on failOnValue, class growth.Class, fails bool) {
	t.Helper()
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
	mustFailOn(t, fastTrace(t, startFullJob(t, 50, "leak=256").PID(), 300, 16*time.Second), "leak", growth.ClassLeak, true)
}

func TestWhatMayBeALeakFailsATraceThatIsToFailOnThatAndNoOther(t *testing.T) {
	for on, fails := range map[failOnValue]bool{"suspected": true, "leak": false} {
		t.Run(string(on), func(t *testing.T) {
			t.Parallel()
			flags, end := shortlyWatched(t)
			defer end()
			mustFailOn(t, flags, on, growth.ClassSuspected, fails)
		})
	}
}

// No other job may grow beside it: it would be said to be the one that should be traced.
func TestAPlateauFailsNoTrace(t *testing.T) {
	mustFailOn(t, fastTrace(t, startFullJob(t, 200).PID(), 300, 6*time.Second), "suspected", growth.ClassPlateau, false)
}
