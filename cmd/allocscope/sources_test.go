package main

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestSources traces with the sources that could be had.
func TestSources(t *testing.T) {
	t.Run("no page map", testNoPageMap)
	t.Run("no perf events", testNoPerfEvents)
}

// states are the states of the sources by their names.
func states(s summary.Summary) map[string]string {
	states := make(map[string]string)
	for _, source := range s.Sources {
		states[source.Name] = source.State
	}
	return states
}

// reasonOf is why a source was not attached.
func reasonOf(t *testing.T, s summary.Summary, name string) string {
	t.Helper()
	for _, source := range s.Sources {
		if source.Name == name && source.State == summary.SourceFailed {
			return words.SourceReason(source)
		}
	}
	t.Errorf("source %s has not failed: %+v", name, s.Sources)
	return ""
}

// mustSum checks for rows of a process that sum to its RSS, most of it explained, and returns them.
func mustSum(t *testing.T, dir string, pid int, rss int64) (rows []summary.BreakdownRow) {
	t.Helper()
	var sum, unexplained int64
	for _, row := range readSummary(t, dir).Breakdown {
		if row.Process != pid || row.Kind == growth.KindSwapped {
			continue
		}
		rows = append(rows, row)
		sum += row.EndBytes
		if row.Kind == growth.KindUnexplained {
			unexplained += row.EndBytes
		}
	}

	if sum != rss || max(unexplained, -unexplained) > 1<<20 {
		t.Errorf("rows sum to %d bytes, %d of them unexplained, and RSS is %d: %v", sum,
			unexplained, rss, rows)
	}

	return rows
}

const (
	leakedObjects, leakedSize = 5000, 1000
	pieces, pieceSize         = 8, 1 << 20
)

// allocate has the target of a trace leak and map, all of it touched.
func allocate(target *tracertest.Target) {
	do(target, "leak %d %d", leakedObjects, leakedSize)
	do(target, "map %d %d %[2]d", pieces, pieceSize)
}

// inside makes a command one that another program runs.
func inside(cmd *exec.Cmd, program string, arguments ...string) *exec.Cmd {
	cmd.Args = slices.Concat([]string{program}, arguments, []string{cmd.Path}, cmd.Args[1:])
	cmd.Path, cmd.Err = exec.LookPath(program)
	return cmd
}

// withoutPages hides the page map of a process from a command.
func withoutPages(cmd *exec.Cmd, pid int) *exec.Cmd {
	return inside(cmd, "unshare", "--mount", "sh", "-c",
		`mount --bind /dev/null /proc/$0/pagemap && exec "$@"`, itoa(pid))
}

func testNoPageMap(t *testing.T) {
	target, dir := startSteps(t), newFolder(t)
	c := begin(t, withoutPages(allocscope(t, traceArguments(target.PID(), dir)...),
		target.PID()))
	c.awaitFile(dir, "snapshots/000.pb.gz")
	allocate(target)
	c.interrupt()
	sum := readSummary(t, dir)

	failed := slices.IndexFunc(sum.Sources, func(s summary.Source) bool {
		return s.State == summary.SourceFailed && strings.Contains(s.Detail, "pagemap")
	})

	if failed < 0 {
		t.Errorf("no source failed for want of the page map: %+v", sum.Sources)
	}

	grown := readProfile(t, dir, folder.GrowthFile)
	mustHold(t, "leak_here", flat(grown, "leak_here"), heldObjects(leakedObjects, leakedSize))
	mustHold(t, "map_here", flat(grown, "map_here"), values{
		pieces, pieces * pieceSize, 0,
		0,
	}) // touched or not
}

// As in a container whose seccomp profile refuses perf_event_open.
func testNoPerfEvents(t *testing.T) {
	target, dir := startSteps(t), newFolder(t)
	c := begin(t, inside(allocscope(t, traceArguments(target.PID(), dir)...),
		tracertest.Build(t, "deny.c")))
	c.awaitFile(dir, "snapshots/000.pb.gz")
	allocate(target)
	rss := rssOf(t, target.PID())
	c.interrupt()
	sum := readSummary(t, dir)
	mustSay(t, "reason", reasonOf(t, sum, "fault"), "operation not permitted", "CAP_PERFMON",
		"seccomp")
	mustSay(t, "reason", reasonOf(t, sum, "mapping"), "operation not permitted")
	mustHaveLeaked(t, dir, folder.GrowthFile, leakedObjects, leakedSize)

	const leaked = leakedObjects * leakedSize
	rows := mustSum(t, dir, target.PID(), rss)
	if !slices.ContainsFunc(rows, func(row summary.BreakdownRow) bool {
		return row.Kind == growth.KindHeap && strings.Contains(row.Name, "leak_here") &&
			row.EndBytes > leaked-leaked/100 && row.EndBytes < leaked+leaked/100
	}) {
		t.Errorf("no row of %d bytes of the heap by leak_here: %v", leaked, rows)
	}
}
