package main

// Traces with some sources alone: those that were asked for, and those that could be had.

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// states are those of the sources by their names.
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
			return source.Reason
		}
	}
	t.Errorf("source %s has not failed: %+v", name, s.Sources)
	return ""
}

// mustSum wants rows of a process that sum to its RSS, most of it explained, and gives them.
func mustSum(t *testing.T, folder string, pid int, rss int64) (rows []summary.BreakdownRow) {
	t.Helper()
	var sum, unexplained int64
	for _, row := range readSummary(t, folder).Breakdown {
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
		t.Errorf("rows sum to %d bytes, %d of them unexplained, and RSS is %d: %v", sum, unexplained, rss, rows)
	}
	return rows
}

// mustRow wants one row of that kind, size within 1 %, and name.
func mustRow(t *testing.T, rows []summary.BreakdownRow, kind growth.Kind, bytes int64, name string) {
	t.Helper()
	for _, row := range rows {
		if row.Kind == kind && strings.Contains(row.Name, name) && row.EndBytes > bytes-bytes/100 && row.EndBytes < bytes+bytes/100 {
			return
		}
	}
	t.Errorf("no row of %d bytes of %s by %s: %v", bytes, kind, name, rows)
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

// Holders are known by what is attached; what is resident is known in any case.
func TestEachSourceIsEnough(t *testing.T) {
	const heap, mapped = leakedObjects * leakedSize, pieces * pieceSize
	for only, holders := range map[string]struct{ heap, mapped string }{
		"heap":    {"leak_here", "mapped without a system call being seen"},
		"mapping": {"holder not known", "map_here"},
		"fault":   {"holder not known", "main (steps)"},
	} {
		t.Run(only, func(t *testing.T) {
			target := startSteps(t)
			c, dir := tracing(t, target, "--sources", only)
			allocate(target)
			rss := rssOf(t, target.PID())
			c.interrupt()
			states := states(readSummary(t, dir))
			for _, name := range source.Names() {
				if want := map[bool]string{true: summary.SourceAttached, false: summary.SourceOff}[name == only]; states[name] != want {
					t.Errorf("source %s is %q, want %q", name, states[name], want)
				}
			}
			rows := mustSum(t, dir, target.PID(), rss)
			mustRow(t, rows, growth.KindHeap, heap, holders.heap)
			mustRow(t, rows, growth.KindMmap, mapped, holders.mapped)
		})
	}
}

// privileged makes a command that of a user who may do no more than load programs and count events.
func privileged(cmd *exec.Cmd) *exec.Cmd {
	unprivileged(cmd).SysProcAttr.AmbientCaps = []uintptr{unix.CAP_BPF, unix.CAP_PERFMON}
	return cmd
}

func TestWithTwoCapabilitiesOnesOwnProcessHasALedger(t *testing.T) {
	target := tracertest.StartCommand(t, unprivileged(exec.Command("sleep", "1000")))
	dir := newFolder(t)
	if err := os.Chmod(filepath.Dir(filepath.Dir(dir)), 0o755); err != nil { // for him to reach it
		t.Fatal(err)
	}
	c := begin(t, privileged(allocscope(t, traceArguments(target.PID(), dir, "--duration", "1s")...)))
	c.mustEnd(0)
	s := readSummary(t, dir)
	if states := states(s); states["fault"] != summary.SourceAttached {
		t.Errorf("source fault is %s", states["fault"])
	}
	for _, name := range []string{"heap", "mapping"} {
		mustSay(t, "stderr", c.stderr.String(), "source "+name, reasonOf(t, s, name))
	}
	mustSum(t, dir, target.PID(), rssOf(t, target.PID()))
}

// inside makes a command one that another program runs.
func inside(cmd *exec.Cmd, program string, arguments ...string) *exec.Cmd {
	cmd.Args = slices.Concat([]string{program}, arguments, []string{cmd.Path}, cmd.Args[1:])
	cmd.Path, cmd.Err = exec.LookPath(program)
	return cmd
}

// withoutPages hides the page map of a process from a command.
func withoutPages(cmd *exec.Cmd, pid int) *exec.Cmd {
	return inside(cmd, "unshare", "--mount", "sh", "-c", `mount --bind /dev/null /proc/$0/pagemap && exec "$@"`, itoa(pid))
}

func TestWithoutThePageMapTheRestIsTraced(t *testing.T) {
	target, dir := startSteps(t), newFolder(t)
	c := begin(t, withoutPages(allocscope(t, traceArguments(target.PID(), dir)...), target.PID()))
	c.awaitFile(dir, "snapshots/000.pb.gz")
	allocate(target)
	c.interrupt()
	s := readSummary(t, dir)
	mustSay(t, "reason", reasonOf(t, s, "ledger"), "pagemap", "CONFIG_PROC_PAGE_MONITOR")
	mustSay(t, "stderr", c.stderr.String(), "source ledger of PID "+itoa(target.PID())+" is not attached")
	grown := readProfile(t, dir, folder.GrowthFile)
	mustHold(t, "leak_here", flat(grown, "leak_here"), objects(leakedObjects, leakedSize))
	mustHold(t, "map_here", flat(grown, "map_here"), values{pieces, pieces * pieceSize, 0, 0}) // touched or not
}

// As in a container whose seccomp profile refuses perf_event_open.
func TestWherePerfEventsAreRefusedTheHeapIsTraced(t *testing.T) {
	target, dir := startSteps(t), newFolder(t)
	c := begin(t, inside(allocscope(t, traceArguments(target.PID(), dir)...), tracertest.Build(t, "deny.c")))
	c.awaitFile(dir, "snapshots/000.pb.gz")
	allocate(target)
	rss := rssOf(t, target.PID())
	c.interrupt()
	s := readSummary(t, dir)
	mustSay(t, "reason", reasonOf(t, s, "fault"), "operation not permitted", "CAP_PERFMON", "seccomp")
	mustSay(t, "reason", reasonOf(t, s, "mapping"), "operation not permitted")
	mustHold(t, "leak_here", flat(readProfile(t, dir, folder.GrowthFile), "leak_here"), objects(leakedObjects, leakedSize))
	mustRow(t, mustSum(t, dir, target.PID(), rss), growth.KindHeap, leakedObjects*leakedSize, "leak_here")
}

func TestDoctorSaysThatPerfEventsAreRefused(t *testing.T) {
	c := begin(t, inside(allocscope(t, "doctor"), tracertest.Build(t, "deny.c")))
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "part  source fault", "operation not permitted", "seccomp", "ok    ledger")
}

func TestDoctorSaysThatPagesCannotBeSeen(t *testing.T) {
	target := startSteps(t)
	c := begin(t, withoutPages(allocscope(t, "doctor", "--pid", itoa(target.PID())), target.PID()))
	c.mustEnd(0)
	mustSay(t, "stdout", c.stdout.String(), "part  ledger", "read pagemap: ", "-> use a kernel built with CONFIG_PROC_PAGE_MONITOR")
}
