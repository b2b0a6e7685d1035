package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// launch starts a shell with a script, in which $STEPS and $JOB are the programs of the tests.
func launch(t *testing.T, script string) *tracertest.Target {
	t.Helper()
	programs := strings.NewReplacer(
		"$STEPS", tracertest.Build(t, "steps.c"),
		"$JOB", "/usr/bin/python3 "+tracertest.Source("job.py"),
	)
	launcher := tracertest.Start(t, "/bin/sh", "-c", programs.Replace(script)+"; :") // the shell executes what comes last in its place
	t.Cleanup(launcher.Hangup)
	return launcher
}

// childrenOf are the processes that a process has started and that live, in that order.
func childrenOf(t *testing.T, pid int) []int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	var children []int
	for _, field := range strings.Fields(string(raw)) {
		var child int
		if _, err := fmt.Sscan(field, &child); err != nil {
			t.Fatal(err)
		}
		children = append(children, child)
	}
	return children
}

func childOf(t *testing.T, pid int) int {
	t.Helper()
	children := childrenOf(t, pid)
	if len(children) != 1 {
		t.Fatalf("process %d has the children %v, want one", pid, children)
	}
	return children[0]
}

// awaitLine waits until allocscope has said something on standard error.
func (c *command) awaitLine(words string) {
	c.t.Helper()
	c.await("it says "+words, func() bool { return strings.Contains(c.stderr.String(), words) })
}

// inTree finds a process in the summary.
func inTree(t *testing.T, s summary.Summary, pid int) summary.TreeProcess {
	t.Helper()
	i := slices.IndexFunc(s.Processes, func(p summary.TreeProcess) bool { return p.PID == pid })
	if i < 0 {
		t.Fatalf("processes %+v, want %d among them", s.Processes, pid)
	}
	return s.Processes[i]
}

// mustBeAbout wants the process that a trace is about, where another was asked for.
func mustBeAbout(t *testing.T, s summary.Summary, pid, asked int) {
	t.Helper()
	if s.Process.PID != pid || s.Asked != asked {
		t.Errorf("about %+v, asked for %d; want %d and %d", s.Process, s.Asked, pid, asked)
	}
	if p := inTree(t, s, pid); !p.Traced || p.Verdict == "" {
		t.Errorf("%+v, want it traced and judged", p)
	}
	if asked != 0 && inTree(t, s, asked).Traced {
		t.Errorf("the launcher %d is traced", asked)
	}
}

func TestATrainerThatTakesThePlaceOfAnotherIsTraced(t *testing.T) {
	launcher := ready(launch(t, "$STEPS; $STEPS"))
	first := childOf(t, launcher.PID())
	c, dir := tracing(t, launcher, "--snapshot-every", "100ms")
	do(launcher, "leak 500 640")
	c.awaitSnapshots(dir, 2)
	open := descriptors(t, c.Process.Pid)
	launcher.Say("exit")
	ready(launcher)
	second := childOf(t, launcher.PID())
	c.awaitLine(fmt.Sprintf("PID %d (steps) exited", first))
	c.awaitLine(fmt.Sprintf("tracing PID %d (steps)", second))
	do(launcher, "leak 1000 96")
	c.awaitSnapshots(dir, 2)
	if n := descriptors(t, c.Process.Pid); n > open {
		t.Errorf("%d files are open, and %d were while the first was traced: its own are left", n, open)
	}
	c.interrupt()
	s := mustHaveEnded(t, dir, summary.EndedInterrupt)
	mustBeAbout(t, s, second, launcher.PID())
	if p := inTree(t, s, first); !p.Traced || p.LastS > inTree(t, s, second).FirstS+1 {
		t.Errorf("the first trainer: %+v, the second %+v", p, inTree(t, s, second))
	}
	mustHold(t, "the second trainer", flat(readProfile(t, dir, folder.PlateauFile), "leak_here"), objects(1000, 96))
}

// The first job is on a plateau, and the second one leaks. The first begins, and so ends, once the trace is there.
func TestTheVerdictIsAboutTheTrainerThatTookThePlaceOfAnother(t *testing.T) {
	t.Parallel()
	launcher := ready(launch(t, "$JOB fill=50 until=8 wait=1; $JOB fill=50 leak=64"))
	flags := fastTrace(t, launcher.PID(), 300, 26*time.Second)
	defer beginWith(t, launcher, flags)()
	v, err := judgeUntil(t.Context(), t, flags)
	if err != nil {
		t.Fatal(err)
	}
	v.mustBe(t, growth.ClassLeak)
	mustBeAbout(t, v.Summary, childOf(t, launcher.PID()), launcher.PID())
	v.mustBlame(t)
	if len(v.Processes) != 3 || v.Processes[1].Verdict == growth.ClassLeak || !v.Processes[1].Traced {
		t.Errorf("processes %+v, want the launcher, the first job without a leak, and the second", v.Processes)
	}
}

func TestALauncherThatHasStartedNothingYetIsWaitedFor(t *testing.T) {
	launcher := launch(t, "echo up; read line; $STEPS")
	launcher.Await("up")
	c, dir := tracing(t, launcher)
	mustSay(t, "stderr", c.stderr.String(), "waiting for the program that it starts")
	launcher.Say("go")
	ready(launcher)
	trainer := childOf(t, launcher.PID())
	c.awaitLine(fmt.Sprintf("tracing PID %d (steps)", trainer))
	do(launcher, "leak 1000 96")
	c.interrupt()
	mustBeAbout(t, mustHaveEnded(t, dir, summary.EndedInterrupt), trainer, launcher.PID())
	mustHold(t, "leak_here", flat(readProfile(t, dir, folder.GrowthFile), "leak_here"), objects(1000, 96))
}

func TestATrainerThatExitsBeforeItsLauncherIsWhatTheTraceIsAbout(t *testing.T) {
	launcher := ready(launch(t, "$STEPS; read line"))
	trainer := childOf(t, launcher.PID())
	c, dir := tracing(t, launcher, "--snapshot-every", "100ms", "--warmup", "1ms")
	c.awaitFile(dir, "snapshots/001.pb.gz")
	do(launcher, "leak 1000 96")
	do(launcher, "map 10 %d %[1]d", 8192)
	c.awaitSnapshots(dir, 2)
	launcher.Say("exit")
	c.awaitLine(fmt.Sprintf("PID %d (steps) exited", trainer))
	c.awaitSnapshots(dir, 3)
	c.interrupt()
	s := mustHaveEnded(t, dir, summary.EndedInterrupt)
	mustBeAbout(t, s, trainer, launcher.PID())
	grown := readProfile(t, dir, folder.GrowthFile)
	mustHold(t, "leak_here", flat(grown, "leak_here"), objects(1000, 96))
	mustHold(t, "map_here", flat(grown, "map_here"), objects(10, 8192))
	if s.RSS.EndBytes == nil || *s.RSS.EndBytes == 0 {
		t.Errorf("RSS %+v, want that of the trainer while it lived", s.RSS)
	}
}

func TestWithoutChildrenALauncherIsTracedAlone(t *testing.T) {
	launcher := ready(launch(t, "$STEPS"))
	c, dir := tracing(t, launcher, "--no-children", "--snapshot-every", "500ms")
	do(launcher, "leak 1000 96")
	c.awaitSnapshots(dir, 3)
	if found := patches(t, childOf(t, launcher.PID())); len(found) > 0 {
		t.Errorf("the child is probed: %v", found)
	}
	c.interrupt()
	s := mustHaveEnded(t, dir, summary.EndedInterrupt)
	mustBeAbout(t, s, launcher.PID(), 0)
	if len(s.Processes) != 1 || len(s.Groups) != 0 {
		t.Errorf("processes %+v and groups %+v, want the launcher alone", s.Processes, s.Groups)
	}
	mustHold(t, "leak_here", flat(readProfile(t, dir, folder.GrowthFile), "leak_here"), values{})
	for _, p := range readProcesses(t, dir) {
		if p.PID != int64(launcher.PID()) {
			t.Fatalf("processes.csv has a row of %d", p.PID)
		}
	}
}

func TestWorkersAreCountedAndNotTraced(t *testing.T) {
	job := startJob(t, "workers=4", "fill=20")
	c, dir := tracing(t, job, "--interval", "64KiB")
	for _, worker := range childrenOf(t, job.PID()) {
		if found := patches(t, worker); len(found) > 0 {
			t.Errorf("worker %d is probed: %v", worker, found)
		}
	}
	if len(patches(t, job.PID())) == 0 {
		t.Error("the trainer is not probed: the test is wrong")
	}
	c.interrupt()
	s := mustHaveEnded(t, dir, summary.EndedInterrupt)
	mustBeAbout(t, s, job.PID(), 0)
	if len(s.Processes) != 1 || len(s.Groups) != 1 || s.Groups[0].Role != growth.RoleLoaderWorker || s.Groups[0].Processes != 4 {
		t.Errorf("processes %+v, groups %+v; want one, and one of four workers", s.Processes, s.Groups)
	}
	mustAddUp(t, dir, append(childrenOf(t, job.PID()), job.PID()), []int{job.PID()})
}

// Copies of a traced process have its probes, and what they allocate is not its own.
func TestHundredsOfChildrenThatComeAndGoLeaveNothingBehind(t *testing.T) {
	const children = 200
	job := startJob(t, fmt.Sprintf("children=%d", children), "steps=50", "fill=20", "wait=1")
	c, dir := tracing(t, job, "--interval", "64KiB")
	before := descriptors(t, c.Process.Pid)
	job.Say("begin")
	job.Await("childless")
	c.await("the last child is forgotten", func() bool { return descriptors(t, c.Process.Pid) <= before })
	c.signal(syscall.SIGINT)
	c.mustEnd(0)
	s := mustHaveEnded(t, dir, summary.EndedInterrupt)
	mustBeAbout(t, s, job.PID(), 0)
	if len(s.Processes) != 1 || len(s.Losses) > 0 || len(s.Warnings) > 0 {
		t.Errorf("processes %+v, losses %v, warnings %v; want the job alone", s.Processes, s.Losses, s.Warnings)
	}
	for _, sample := range readProfile(t, dir, folder.PlateauFile).Sample {
		if pid := sample.Label["pid"]; !slices.Equal(pid, []string{itoa(job.PID())}) {
			t.Fatalf("a sample is of PID %v, want %d alone", pid, job.PID())
		}
	}
	if !slices.ContainsFunc(readTimelineRows(t, dir), func(r growth.Row) bool { return r.Tree.Processes > 1 }) {
		t.Error("no child was ever seen: the test is wrong")
	}
}

// descriptors is how many files a process has open.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	if err != nil {
		t.Fatal(err)
	}
	return len(open)
}
