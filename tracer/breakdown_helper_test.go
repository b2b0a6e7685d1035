package tracer_test

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// A fact is a line of truth: so much of a function's memory is resident.
type fact struct {
	name  string
	kind  growth.Kind
	bytes int64
}

// anonymousMemory is any kind of memory that is not of a file.
const anonymousMemory growth.Kind = "anonymous"

// of reports whether a holding is one that the fact is about. Kinds without allocation sites are
// compared as a whole.
func (f fact) of(h growth.Holding) bool {
	switch f.kind {
	case growth.KindRetained, growth.KindMetadata, growth.KindStack,
		growth.KindBeforeTracing, growth.KindCOW, growth.KindInherited:
		return h.Kind == f.kind
	case anonymousMemory:
		return h.Kind != growth.KindFile && isNamed(h.Stack, f.name)
	}
	return h.Kind == f.kind && isNamed(h.Stack, f.name)
}

func startBreakdown(t testing.TB) *tracertest.Target {
	t.Helper()
	program := tracertest.Build(t, "breakdown.c", "-fno-omit-frame-pointer", "-pthread")
	return start(t, program)
}

func do(t testing.TB, target *tracertest.Target, order string) (facts []fact) {
	t.Helper()
	for _, line := range target.Do(order) {
		var f fact
		scan(t, line, "truth %s %s %d", &f.name, &f.kind, &f.bytes)
		facts = append(facts, f)
	}
	return facts
}

// holdingsOf are the holdings of a process, traced or not.
func holdingsOf(s *growth.Snapshot, pid int) (own []growth.Holding) {
	for _, h := range slices.Concat(s.Holdings, s.Others) {
		if h.Stack.PID == pid {
			own = append(own, h)
		}
	}
	return own
}

// rowsOf are the resident bytes of a process by kind.
func rowsOf(s *growth.Snapshot, pid int) map[growth.Kind]int64 {
	rows := make(map[growth.Kind]int64)
	for _, h := range holdingsOf(s, pid) {
		rows[h.Kind] += h.ResidentBytes
	}
	return rows
}

func residentOf(t testing.TB, s *growth.Snapshot, pid int) growth.Resident {
	t.Helper()
	for _, r := range s.Residents {
		if r.PID == pid {
			return r
		}
	}
	t.Fatalf("PID %d is none of %+v", pid, s.Residents)
	return growth.Resident{}
}

// mustBeNear allows 2 % or 1 MiB.
func mustBeNear(t testing.TB, what string, got, want int64) {
	t.Helper()
	if off := got - want; math.Abs(float64(off)) > max(1<<20, 0.02*float64(want)) {
		t.Errorf("%s: %d bytes, want %d: off by %d", what, got, want, off)
	}
}

func mustReport(t testing.TB, s *growth.Snapshot, pid int, facts []fact) {
	t.Helper()
	before := t.Failed()
	for _, f := range facts {
		row, _ := rowOf(s, pid, f)
		mustBeNear(t, fmt.Sprintf("%s of %s", f.kind, f.name), row, f.bytes)
	}
	if t.Failed() && !before {
		t.Log(breakdownText(s, pid))
	}
}

// breakdownText lists the rows of 64 KiB and more.
func breakdownText(s *growth.Snapshot, pid int) string {
	var text strings.Builder
	holdings := holdingsOf(s, pid)
	slices.SortFunc(holdings,
		func(a, b growth.Holding) int { return int(b.ResidentBytes - a.ResidentBytes) })
	for _, h := range holdings {
		if max(h.ResidentBytes, -h.ResidentBytes, h.SwappedBytes) >= 64<<10 {
			names := functions(h.Stack)
			fmt.Fprintf(&text, "\n%12d resident %12d shared %12d swapped  %-13s %s %s", h.ResidentBytes,
				h.SharedBytes, h.SwappedBytes,
				h.Kind, h.Stack.Root, strings.Join(names[:min(len(names), 4)], " < "))
		}
	}
	return fmt.Sprintf("%v\n%+v%s", rowsOf(s, pid), s.Residents, text.String())
}

// rollup reads the kernel's sums over the pages of a process, in bytes.
func rollup(t testing.TB, pid int) map[string]int64 {
	t.Helper()
	return kilobytes(t, fmt.Sprintf("/proc/%d/smaps_rollup", pid))
}

// kilobytes reads the lines "Name: N kB" of a file, in bytes.
func kilobytes(t testing.TB, path string) map[string]int64 {
	t.Helper()
	file := tracertest.Must(os.Open(path))(t)
	defer file.Close()
	sizes := make(map[string]int64)
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		var size int64
		if n, _ := fmt.Sscanf(strings.TrimSpace(value), "%d kB", &size); n == 1 {
			sizes[name] = size << 10
		}
	}
	return sizes
}

// balanced takes a snapshot of all pages, in which every process adds up: its rows to the kernel's
// number, to the byte, and those that are explained to the kernel's other number, which counts the
// pages; the processes hold still meanwhile.
func balanced(t testing.TB, s *tracer.Session) *growth.Snapshot {
	t.Helper()
	got := tracertest.Must(scanAll(s))(t)
	if len(got.Residents) == 0 {
		t.Fatal("a snapshot without processes")
	}

	for _, r := range got.Residents {
		var sum int64
		for _, h := range holdingsOf(got, r.PID) {
			sum += h.ResidentBytes
			if h.SharedBytes < 0 || h.SharedBytes > max(h.ResidentBytes, 0) || h.ResidentBytes < 0 &&
				h.Kind != growth.KindUnexplained {
				t.Errorf("%s of %v %s: %d bytes resident, %d of them shared", h.Kind,
					functions(h.Stack), h.Stack.Root, h.ResidentBytes, h.SharedBytes)
			}
		}

		if sum != r.RSS {
			t.Errorf("the rows of PID %d sum to %d bytes, its RSS is %d\n%s", r.PID, sum, r.RSS,
				breakdownText(got, r.PID))
		}
		rss, slack := rollup(t, r.PID)["Rss"], countSlack(r)
		if rss < r.RSS-slack || rss > r.RSS+slack {
			t.Errorf("PID %d: RSS of %d bytes, by its pages %d", r.PID, r.RSS, rss)
		}

		mustBeNear(t, fmt.Sprintf("what is explained of PID %d, whose RSS is %d", r.PID, r.RSS),
			r.RSS-rowsOf(got, r.PID)[growth.KindUnexplained], rss)
	}
	return got
}

// treeTotal is the memory of the processes together: shared memory counts once.
func treeTotal(s *growth.Snapshot) (sum int64) {
	for _, h := range slices.Concat(s.Holdings, s.Others) {
		sum += h.ResidentBytes - h.SharedBytes
	}
	return sum
}

func dataFile(t testing.TB, bytes int) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "data.bin")
	must(t, os.WriteFile(path, make([]byte, bytes), 0o600))
	return path
}

// startForks starts testdata/forks.py, and traces its root alone.
func startForks(t testing.TB) (*tracertest.Target, *tracer.Session) {
	t.Helper()
	target := start(t, python, tracertest.Source("forks.py"))
	return target, open(t, tracer.Options{PID: target.PID(), Interval: 1, Children: true})
}

// fork has a process start a child, which becomes a member of the tree.
func fork(t testing.TB, s *tracer.Session, target *tracertest.Target, order string) (pid int) {
	t.Helper()
	target.Say(order)
	pid = awaitChild(t, target, "done")
	awaitMember(t, s, pid)
	return pid
}

// awaitChild returns the PID of the child that a target reports before the word.
func awaitChild(t testing.TB, target *tracertest.Target, word string) (pid int) {
	t.Helper()
	scan(t, strings.Join(target.Await(word), "\n"), "child %d", &pid)
	return pid
}

// startChild has a program of breakdown.c start one that executes "child ORDER". It returns once that
// prints the word.
func startChild(t testing.TB, parent *tracertest.Target, how, word string) (pid int) {
	t.Helper()
	parent.Say("start_child " + how)
	return awaitChild(t, parent, word)
}

func awaitMember(t testing.TB, s *tracer.Session, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("PID %d is a member", pid), func() bool { return isMember(t, s, pid) })
}

func isMember(t testing.TB, s *tracer.Session, pid int) bool {
	t.Helper()
	s.Follow()
	return slices.Contains(processes(snapshot(t, s)), pid)
}

// addedUp are the rows of a process that does not hold still, by kind: they sum to the kernel's
// count.
func addedUp(t *testing.T, s *growth.Snapshot, pid int) map[growth.Kind]int64 {
	t.Helper()
	rows := rowsOf(s, pid)
	var sum int64
	for _, bytes := range rows {
		sum += bytes
	}
	if r := residentOf(t, s, pid); sum != r.RSS {
		t.Errorf("rows %v sum to %d bytes, RSS is %d", rows, sum, r.RSS)
	}
	return rows
}

func scaleOf(t *testing.T, orders ...string) (*tracer.Session, *tracertest.Target) {
	t.Helper()
	target, s := openOn(t, startScale(t, "nothing"), exact)
	for _, o := range orders {
		order(target, "%s", o)
	}
	return s, target
}

func startLarge(t testing.TB) *tracertest.Target {
	t.Helper()
	return start(t, tracertest.Build(t, "large.c", "-fno-omit-frame-pointer"))
}

// scanAll takes a snapshot as if the budget of its scans had no bound.
func scanAll(s *tracer.Session) (*growth.Snapshot, error) {
	*tracer.Budget(s) = residency.Budget{SecondsPerByte: 1e-18}
	return s.Snapshot()
}

// setScanShare makes pages so expensive that the next snapshot scans a share of a process's pages.
func setScanShare(t testing.TB, s *tracer.Session, pid int, share float64) {
	t.Helper()
	const secondsPerSnapshot = 10e-3 // that scans may take, which are a hundredth of a core
	cost := secondsPerSnapshot / share / float64(rollup(t, pid)["Rss"])
	if share == 1 {
		cost = 1e-18
	}
	*tracer.Budget(s) = residency.Budget{
		Limit: duty.NewBudget(0).Account(duty.Scans), SecondsPerByte: cost,
	}
}

// scanShareOf takes a snapshot that scans a share of the pages. Its rows must sum to RSS.
func scanShareOf(t *testing.T, s *tracer.Session, pid int, share float64) *growth.Snapshot {
	t.Helper()
	setScanShare(t, s, pid, share)
	got := snapshot(t, s)
	addedUp(t, got, pid)
	if r := residentOf(t, got, pid); r.RSS < 512<<20 {
		t.Errorf("RSS is %d bytes: the test is wrong", r.RSS)
	}
	return got
}

func rowOf(s *growth.Snapshot, pid int, f fact) (resident int64, variance float64) {
	for _, h := range holdingsOf(s, pid) {
		if f.of(h) {
			resident, variance = resident+h.ResidentBytes, variance+h.ResidentVariance
		}
	}
	return resident, variance
}

func startScale(t testing.TB, orders ...string) *tracertest.Target {
	tracertest.NeedsRoot(t)
	target := start(t, tracertest.Build(t, "scale.c", "-pthread"))
	for _, o := range orders {
		order(target, "%s", o)
	}
	return target
}
