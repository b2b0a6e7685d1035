package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/advice"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// loader is testdata/loader.py, a trainer with DataLoader workers that leaks by one line.
type loader struct {
	*tracertest.Target
	t *testing.T
}

const (
	loaderWorkers = "2"
	loaderWarmup  = "10s" // longer than it takes to make the unwind tables
	baselineFile  = "snapshots/001.pb.gz"
)

// startLoader starts the trainer, whose workers read so many labels and which keeps a note of so
// many bytes of each step.
func startLoader(t *testing.T, labels, note int) loader {
	t.Helper()
	tracertest.NeedsRoot(t)
	target := tracertest.Start(t, "/usr/bin/python3", tracertest.Source("loader.py"), loaderWorkers,
		itoa(labels), itoa(note))
	t.Cleanup(target.Hangup)
	return loader{ready(target), t}
}

// train does so many steps. It returns the bytes that have leaked by then, as the program counts
// them.
func (l loader) train(steps int) (leaked int64) {
	l.t.Helper()
	l.Say(itoa(steps))
	lines := l.Await("done")

	var number int
	var name string
	last := lines[len(lines)-2]
	if _, err := fmt.Sscanf(last, "step %d %s %d", &number, &name, &leaked); err != nil {
		l.t.Fatalf("%q: %v", last, err)
	}

	for _, pid := range childrenOf(l.t, l.PID()) {
		awaitState(l.t, pid, "S")
	}

	return leaked
}

// TestBreakdown traces a real trainer with workers, which grow by copies of the pages of labels: they
// count references there. The ground truths are the bytes that the program has leaked and the
// kernel's count of private memory. readSummary checks that all rows sum to the RSS of the kernel.
func TestBreakdown(t *testing.T) {
	t.Parallel()
	const minCopied = 64 << 20 // bytes
	l := startLoader(t, 4_000_000, 0)
	before := l.train(70) // until only the leak grows
	workers := childrenOf(t, l.PID())
	c, dir := tracing(t, l.Target, "--interval", "64KiB", "--warmup", loaderWarmup,
		"--keepers", "off")
	c.awaitFile(dir, baselineFile)
	copied := -privateOf(t, workers)
	leaked := l.train(100) - before
	copied += privateOf(t, workers)
	if copied < minCopied {
		t.Fatalf("the workers grew by %d private bytes: the test is wrong", copied)
	}
	c.interrupt()

	s := readSummary(t, dir)
	mustBreakDown(t, &s, l.PID(), leaked)
	mustBreakDownCopies(t, &s, workers, copied)
}

// mustBreakDown checks the rows of the trainer itself.
func mustBreakDown(t *testing.T, s *summary.Summary, pid int, leaked int64) {
	t.Helper()
	grown := *s.RSS.EndBytes - *s.RSS.BaselineBytes
	rows := rowsOf(s, pid)
	if line := leakLine(t, "loader.py"); rows[0].Kind != growth.KindHeap ||
		!strings.Contains(rows[0].Name, line) {
		t.Errorf("the first row is %+v, want heap of %s", rows[0], line)
	}

	var unexplained int64
	for _, r := range rows {
		if r.Kind == growth.KindUnexplained {
			unexplained += r.DeltaBytes
		}
	}
	mustBePart(t, "the leak", rows[0].DeltaBytes, leaked, grown)
	mustBePart(t, "unexplained", unexplained, 0, grown)
}

// mustBreakDownCopies checks the rows of the workers.
func mustBreakDownCopies(t *testing.T, s *summary.Summary, workers []int, want int64) {
	t.Helper()
	for _, pid := range workers {
		isWorker := func(p summary.Resident) bool {
			return p.Process == pid && p.Role == growth.RoleWorker
		}
		if !slices.ContainsFunc(s.Residents, isWorker) {
			t.Errorf("worker %d is not among %+v", pid, s.Residents)
		}
	}

	var copied int64
	for _, row := range s.Breakdown {
		if slices.Contains(workers, row.Process) && row.Kind == growth.KindCOW {
			copied += row.DeltaBytes
		}
	}
	mustBePart(t, "copies", copied, want, want)

	isAboutCopies := func(a advice.Advice) bool { return a.About == advice.AboutCopies }
	if !slices.ContainsFunc(s.Advice, isAboutCopies) {
		t.Errorf("advice %+v, want one about copies", s.Advice)
	}
}

// privateOf is the private memory of processes, as the kernel counts it, in bytes.
func privateOf(t *testing.T, pids []int) (bytes int64) {
	t.Helper()
	for _, pid := range pids {
		for line := range strings.Lines(readFile(t, fmt.Sprintf("/proc/%d/smaps_rollup", pid))) {
			var kib int64
			_, value, found := strings.Cut(line, ":")
			if !found || !strings.HasPrefix(line, "Private_") {
				continue
			}
			if _, err := fmt.Sscanf(value, "%d kB", &kib); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			bytes += kib << 10
		}
	}
	return bytes
}

// rowsOf returns the rows of a process, the largest growth first.
func rowsOf(s *summary.Summary, pid int) []summary.BreakdownRow {
	rows := slices.DeleteFunc(slices.Clone(s.Breakdown),
		func(r summary.BreakdownRow) bool { return r.Process != pid })
	slices.SortFunc(rows, func(a, b summary.BreakdownRow) int {
		return cmp.Compare(b.DeltaBytes, a.DeltaBytes)
	})
	return rows
}

// mustBePart checks that two parts of the growth of RSS differ by at most five points.
func mustBePart(t *testing.T, what string, got, want, grown int64) {
	t.Helper()
	if math.Abs(float64(got-want)) > 0.05*float64(grown) {
		t.Errorf("%s: %d of %d bytes of growth, want %d within 5%% of it", what, got, grown, want)
	}
}
