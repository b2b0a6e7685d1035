package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/rows"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// ranks starts two programs as torchrun does, and gives what they read their orders from.
func ranks(t *testing.T) (launcher *tracertest.Target, inputs [2]*os.File) {
	t.Helper()
	folder, script := t.TempDir(), ""
	for rank := range inputs {
		path := filepath.Join(folder, itoa(rank))
		if err := unix.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		input, err := os.OpenFile(path, os.O_RDWR, 0) // which does not wait for the reader
		if err != nil {
			t.Fatal(err)
		}
		inputs[rank] = input
		script += fmt.Sprintf("RANK=%d WORLD_SIZE=2 $STEPS <%s & ", rank, path)
	}
	launcher = launch(t, script+"wait")
	t.Cleanup(func() { inputs[0].Close(); inputs[1].Close() }) // on which they exit, and the launcher with them
	return ready(ready(launcher)), inputs
}

// ofPID is what a profile has of one process.
func ofPID(p *pprof.Profile, pid int) *pprof.Profile {
	isOther := func(s *pprof.Sample) bool { return !slices.Equal(s.Label["pid"], []string{itoa(pid)}) }
	return &pprof.Profile{Sample: slices.DeleteFunc(slices.Clone(p.Sample), isOther)}
}

func TestAllRanksAreTraced(t *testing.T) {
	launcher, inputs := ranks(t)
	pids := childrenOf(t, launcher.PID())
	c, dir := tracing(t, launcher)
	counts := []int64{1000, 300}
	for rank, input := range inputs {
		fmt.Fprintf(input, "leak %d 96\n", counts[rank])
		launcher.Await("done")
	}
	c.await("rows of two moments", func() bool { return strings.Count(readFile(t, dir, folder.TimelineFile), "\n") > 2 })
	c.interrupt()
	s, grown := mustHaveEnded(t, dir, summary.EndedInterrupt), readProfile(t, dir, folder.GrowthFile)
	for rank, pid := range pids {
		p := inTree(t, s, pid)
		if p.Role != growth.RoleRank || p.Rank == nil || *p.Rank != rank || !p.Traced || p.Verdict == "" {
			t.Errorf("%+v, want rank %d, traced and judged", p, rank)
		}
		mustHold(t, fmt.Sprintf("rank %d", rank), flat(ofPID(grown, pid), "leak_here"), objects(counts[rank], 96))
	}
	mustHold(t, "both", flat(grown, "leak_here"), objects(1300, 96))
	mustSay(t, "stderr", c.stderr.String(), "tracing 2 ranks")
	if p := inTree(t, s, launcher.PID()); p.Role != growth.RoleLauncher || p.Traced || s.Asked != launcher.PID() {
		t.Errorf("%+v, want a launcher that is not traced", p)
	}
	mustAddUp(t, dir, append(pids, launcher.PID()), pids)
}

// mustAddUp wants a row of each process at each moment, whose sums are those of the timeline.
func mustAddUp(t *testing.T, folder string, tree, traced []int) {
	t.Helper()
	rows := readProcesses(t, folder)
	for _, moment := range readTimelineRows(t, folder) {
		var ofTree, ofTraced int64
		var found []int
		for _, p := range rows {
			if p.Elapsed != moment.Elapsed {
				continue
			}
			found = append(found, int(p.PID))
			ofTree += p.RSS
			if slices.Contains(traced, int(p.PID)) {
				ofTraced += p.RSS
			}
		}
		slices.Sort(found)
		if slices.Sort(tree); !slices.Equal(found, tree) || ofTree != moment.Tree.RSS || ofTraced != moment.RSS {
			t.Errorf("at %s: processes %v of %d bytes, the traced ones of %d; want %v, %d, %d", moment.Elapsed, found, ofTree, ofTraced,
				tree, moment.Tree.RSS, moment.RSS)
		}
	}
}

func readTimelineRows(t *testing.T, dir string) []growth.Row {
	t.Helper()
	rows, err := rows.ReadTimeline(strings.NewReader(readFile(t, dir, folder.TimelineFile)))
	if err != nil || len(rows) == 0 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	return rows
}

func readProcesses(t *testing.T, dir string) []growth.ProcessSample {
	t.Helper()
	samples, err := rows.ReadProcesses(strings.NewReader(readFile(t, dir, folder.ProcessesFile)), nil)
	if err != nil {
		t.Fatal(err)
	}
	return samples
}
