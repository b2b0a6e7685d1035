package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestProcessTree(t *testing.T) {
	t.Run("second trainer of a launcher", testSecondTrainer)
	t.Run("ranks", testRanks)
}

// launch starts a shell with a script, in which $STEPS and $JOB are the programs of the tests.
func launch(t *testing.T, script string) *tracertest.Target {
	t.Helper()
	programs := strings.NewReplacer("$STEPS", tracertest.Build(t, "steps.c"), "$JOB",
		"/usr/bin/python3 "+tracertest.Source("job.py"))
	launcher := tracertest.Start(t, "/bin/sh", "-c", programs.Replace(script)+
		"; :") // the shell executes the last command in its place
	t.Cleanup(launcher.Hangup)
	return launcher
}

// childrenOf are the processes that a process has started and that live, in that order.
func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("process %d has the threads %q, %v", pid, threads, err)
	}

	for _, thread := range threads {
		raw, _ := os.ReadFile(thread) // it may have ended
		for field := range strings.FieldsSeq(string(raw)) {
			var child int
			if _, err := fmt.Sscan(field, &child); err != nil {
				t.Fatal(err)
			}
			children = append(children, child)
		}
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

// inTree finds a process in the summary.
func inTree(t *testing.T, s summary.Summary, pid int) summary.TreeProcess {
	t.Helper()
	i := slices.IndexFunc(s.Processes, func(p summary.TreeProcess) bool { return p.PID == pid })
	if i < 0 {
		t.Fatalf("processes %+v, want %d among them", s.Processes, pid)
	}
	return s.Processes[i]
}

func testSecondTrainer(t *testing.T) {
	launcher := ready(launch(t, "$STEPS; $STEPS"))
	first := childOf(t, launcher.PID())
	c, dir := tracing(t, launcher, "--snapshot-every", "200ms", "--keepers", "off")
	do(launcher, "leak 500 640")
	c.awaitSnapshots(dir, 2)
	launcher.Say("exit")
	ready(launcher)
	second := childOf(t, launcher.PID())
	c.awaitLine(fmt.Sprintf("PID %d (steps) exited", first))
	c.awaitLine(fmt.Sprintf("Tracing PID %d (steps)", second))
	do(launcher, "leak 1000 96")
	c.awaitSnapshots(dir, 2)
	c.interrupt()
	s := mustHaveEnded(t, dir, summary.EndedInterrupt)
	if s.Process.PID != second || s.Asked != launcher.PID() {
		t.Errorf("about %+v, asked for %d; want %d and %d", s.Process, s.Asked, second,
			launcher.PID())
	}
	if inTree(t, s, launcher.PID()).Traced {
		t.Errorf("the launcher %d is traced", launcher.PID())
	}

	p, q := inTree(t, s, first), inTree(t, s, second)
	if !p.Traced || p.LastS > q.FirstS+1 || !q.Traced || q.Verdict == "" {
		t.Errorf("the first trainer: %+v, the second %+v", p, q)
	}

	mustHaveLeaked(t, dir, folder.PlateauFile, 1000, 96)
}

// startTorchrun starts two programs as torchrun does, and returns the files from which they read
// their orders.
func startTorchrun(t *testing.T) (launcher *tracertest.Target, inputs [2]*os.File) {
	t.Helper()
	dir, script := t.TempDir(), ""
	for rank := range inputs {
		path := filepath.Join(dir, itoa(rank))
		must(t, unix.Mkfifo(path, 0o600))

		input, err := os.OpenFile(path, os.O_RDWR, 0) // which does not wait for the reader
		must(t, err)

		inputs[rank] = input
		script += fmt.Sprintf("RANK=%d WORLD_SIZE=2 $STEPS <%s & ", rank, path)
	}

	launcher = launch(t, script+"wait")
	t.Cleanup(func() {
		inputs[0].Close()
		inputs[1].Close()
	}) // on which they exit, and the launcher with them

	return ready(ready(launcher)), inputs
}

// ofPID is the part of a profile of one process.
func ofPID(p *profile.Profile, pid int) *profile.Profile {
	isOther := func(s *profile.Sample) bool {
		return !slices.Equal(s.Label["pid"], []string{itoa(pid)})
	}
	return &profile.Profile{Sample: slices.DeleteFunc(slices.Clone(p.Sample), isOther)}
}

func testRanks(t *testing.T) {
	launcher, inputs := startTorchrun(t)
	pids := childrenOf(t, launcher.PID())
	c, dir := tracing(t, launcher)
	counts := []int64{1000, 300}

	for rank, input := range inputs {
		fmt.Fprintf(input, "leak %d 96\n", counts[rank])
		launcher.Await("done")
	}

	c.await("rows of two moments",
		func() bool { return strings.Count(readFile(t, dir, folder.TimelineFile), "\n") > 2 })
	c.interrupt()
	s, grown := mustHaveEnded(t, dir, summary.EndedInterrupt), readProfile(t, dir,
		folder.GrowthFile)

	for rank, pid := range pids {
		p := inTree(t, s, pid)
		if p.Role != growth.RoleRank || p.Rank == nil || *p.Rank != rank || !p.Traced ||
			p.Verdict == "" {
			t.Errorf("%+v, want rank %d, traced and judged", p, rank)
		}
		mustHold(t, fmt.Sprintf("rank %d", rank), flat(ofPID(grown, pid), "leak_here"),
			heldObjects(counts[rank], 96))
	}

	mustHold(t, "both", flat(grown, "leak_here"), heldObjects(1300, 96))
	mustSay(t, "stderr", c.stderr.String(), "Tracing 2 ranks")
	if p := inTree(t, s, launcher.PID()); p.Role != growth.RoleLauncher || p.Traced ||
		s.Asked != launcher.PID() {
		t.Errorf("%+v, want a launcher that is not traced", p)
	}

	mustAddUp(t, dir, append(pids, launcher.PID()), pids)
}

// mustAddUp checks for a row of each process at each moment, whose sums are in the timeline.
func mustAddUp(t *testing.T, dir string, tree, traced []int) {
	t.Helper()
	samples, err := rows.ReadProcesses(strings.NewReader(readFile(t, dir,
		folder.ProcessesFile)), nil)
	must(t, err)

	slices.Sort(tree)
	for _, moment := range readTimeline(t, dir) {
		var ofTree, ofTraced int64
		var found []int
		for _, p := range samples {
			if p.Elapsed != moment.Elapsed {
				continue
			}
			found = append(found, int(p.PID))
			ofTree += p.RSS
			if slices.Contains(traced, int(p.PID)) {
				ofTraced += p.RSS
			}
		}

		if slices.Sort(found); !slices.Equal(found, tree) || ofTree != moment.Tree.RSS ||
			ofTraced != moment.RSS {
			t.Errorf("at %s: processes %v of %d bytes, the traced ones of %d; want %v, %d, %d",
				moment.Elapsed, found, ofTree, ofTraced, tree, moment.Tree.RSS, moment.RSS)
		}
	}
}
