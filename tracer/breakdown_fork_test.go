package tracer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestBreakdownTree compares the RSS breakdowns of processes that share memory with the kernel's
// sums.
func TestBreakdownTree(t *testing.T) {
	t.Run("forked child has its copies", testBreakdownTreeForkedChildCopies)
	t.Run("forked child without its parent", testBreakdownTreeForkedChildWithout)
	t.Run("exit of the parent makes no copies", testBreakdownTreeExitParentMakes)
	t.Run("released and touched again is no copy", testBreakdownTreeReleasedTouchedAgain)
	t.Run("memory shared with own children", testBreakdownTreeMemorySharedOwn)
	t.Run("execution forgets the rows", testBreakdownTreeExecutionForgetsRows)
	t.Run("reused PID starts again", testBreakdownTreeReusedPIDStarts)
	t.Run("stopped processes", testBreakdownTreeStoppedProcesses)
	t.Run("processes that come and go", testBreakdownTreeProcessesComeGo)
	t.Run("parts of a file count once", testBreakdownTreePartsFileCount)
	t.Run("memory that two programs share counts once", testBreakdownTreeMemoryTwoPrograms)
}

func testBreakdownTreeExitParentMakes(t *testing.T) {
	target, s := startForks(t)
	middle := fork(t, s, target, "0 fork")
	target.Do("1 hold 64")
	child := fork(t, s, target, "1 fork")
	target.Do("2 write 16")
	got := balanced(t, s)
	mustBeNear(t, "copies", rowsOf(got, child)[growth.KindCOW], rollup(t, child)["Private_Dirty"])
	target.Do("1 leave")
	eventually(t, "it is no member", func() bool { return !isMember(t, s, middle) })
	got = balanced(t, s)
	if rows := rowsOf(got, child); copies(got, child) != 0 || rows[growth.KindInherited] != 0 ||
		rows[growth.KindMmap] < 64<<20 {
		t.Errorf("%v of a child without a parent", rows)
	}
}

// copies are of inherited pages, and not of pages of files that were written to.
func copies(s *growth.Snapshot, pid int) (sum int64) {
	for _, h := range holdingsOf(s, pid) {
		if h.Stack.Root == "[copy-on-write]" {
			sum += h.ResidentBytes
		}
	}
	return sum
}

func testBreakdownTreeReleasedTouchedAgain(t *testing.T) {
	target, s := startForks(t)
	target.Do("0 hold 64")
	child := fork(t, s, target, "0 fork")
	target.Do("1 discard 32")
	before := balanced(t, s)
	target.Do("1 write 32")
	after := balanced(t, s)
	mustBeNear(t, "copies", copies(after, child), copies(before, child))
	grown := rowsOf(after, child)[growth.KindMmap] - rowsOf(before, child)[growth.KindMmap]
	mustBeNear(t, "its own", grown, 32<<20)
}

func testBreakdownTreeMemorySharedOwn(t *testing.T) {
	target, s := startForks(t)
	target.Do("0 hold 64")
	middle := fork(t, s, target, "0 fork")
	target.Do("1 hold 32")
	before := balanced(t, s)
	fork(t, s, target, "1 fork")
	worker := fork(t, s, target, "1 fork")
	after := balanced(t, s)
	for _, kind := range []growth.Kind{growth.KindMmap, growth.KindInherited, growth.KindCOW} {
		mustBeNear(t, fmt.Sprintf("%s after it has forked", kind), rowsOf(after, middle)[kind],
			rowsOf(before, middle)[kind])
	}

	mustBeNear(t, "its own", rowsOf(after, middle)[growth.KindMmap], 32<<20)
	mustBeNear(t, "inherited by a worker", rowsOf(after, worker)[growth.KindInherited],
		rollup(t, worker)["Shared_Dirty"])
	if kinds := rowsOf(after, target.PID()); kinds[growth.KindInherited] != 0 ||
		kinds[growth.KindCOW] != 0 {
		t.Errorf("%v of a root that has forked", kinds)
	}
	mustShareAsTheKernelDoes(t, after)
}

// mustShareAsTheKernelDoes: memory outside files counts once for the tree, as it does in PSS.
func mustShareAsTheKernelDoes(t testing.TB, s *growth.Snapshot) {
	t.Helper()
	var once, pss int64
	for _, pid := range processes(s) {
		pss += rollup(t, pid)["Pss_Anon"]
		for _, h := range holdingsOf(s, pid) {
			if h.Kind != growth.KindFile && h.Kind != growth.KindShmem {
				once += h.ResidentBytes - h.SharedBytes
			}
		}
	}
	mustBeNear(t, "private memory of the tree", once, pss)
}

func processes(s *growth.Snapshot) (pids []int) {
	for _, r := range s.Residents {
		pids = append(pids, r.PID)
	}
	return pids
}

func testBreakdownTreeExecutionForgetsRows(t *testing.T) {
	target, s := startForks(t)
	target.Do("0 hold 64")
	child := fork(t, s, target, "0 fork")
	target.Do("1 write 16")
	if r := residentOf(t, balanced(t, s), child); !r.Forked {
		t.Errorf("%+v of a fork", r)
	}

	target.Do("1 execute")
	eventually(t, "it has touched its last page", func() bool { return waitsForInput(t, child) })
	for range 2 { // known already at the first, without the tree having been scanned
		got := balanced(t, s)
		r, rows := residentOf(t, got, child), rowsOf(got, child)
		if r.Forked || r.RSS > 32<<20 || copies(got, child) != 0 || rows[growth.KindInherited] != 0 {
			t.Errorf("%+v, %v of a program that holds nothing", r, rows)
		}

		s.Follow()
	}
}

// waitsForInput: the process sleeps in a read of its standard input.
func waitsForInput(t testing.TB, pid int) bool {
	t.Helper()
	call := tracertest.Must(os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid)))(t)
	return strings.HasPrefix(string(call), fmt.Sprintf("%d 0x0 ", unix.SYS_READ))
}

func testBreakdownTreeReusedPIDStarts(t *testing.T) {
	target, s := startForks(t)
	child := fork(t, s, target, "0 fork")
	target.Do("1 hold 64")
	balanced(t, s)
	target.Say(fmt.Sprintf("0 replace %d", child))
	if pid := awaitChild(t, target, "done"); pid != child {
		t.Fatalf("PID %d, want %d: the test is wrong", pid, child)
	}

	target.Do("1 hold 8")
	for range 2 { // the first finds another process, the second scans it
		s.Follow()
	}

	got := balanced(t, s)
	mustBeNear(t, "its own", rowsOf(got, child)[growth.KindMmap], 8<<20)
	mustBeNear(t, "inherited", rowsOf(got, child)[growth.KindInherited],
		rollup(t, child)["Shared_Dirty"])
}

func testBreakdownTreeStoppedProcesses(t *testing.T) {
	target, s := startForks(t)
	child := fork(t, s, target, "0 fork")
	target.Do("1 hold 16", "0 hold 16")
	for _, pid := range []int{child, target.PID()} {
		must(t, unix.Kill(pid, unix.SIGSTOP))
		t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) })
	}

	eventually(t, "it is stopped", func() bool { return s.IsStopped(target.PID()) })
	got := balanced(t, s)
	for _, pid := range []int{child, target.PID()} {
		mustBeNear(t, "mapped", rowsOf(got, pid)[growth.KindMmap], 16<<20)
	}
}

// A process that exits or executes during its scan is left out, or its rows add up.
func testBreakdownTreeProcessesComeGo(t *testing.T) {
	t.Parallel()
	target := start(t, "/bin/bash", "-c",
		"echo ready; while :; do for i in 1 2 3; do /bin/true | ( exec /bin/true ) & done; wait; done")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, Children: true})

	seen := make(map[int]bool)
	scans, off := 0, 0
	for len(seen) < 15 {
		s.Follow()
		got := snapshot(t, s)
		for _, r := range got.Residents {
			var sum int64
			seen[r.PID] = true
			for _, bytes := range rowsOf(got, r.PID) {
				sum += bytes
			}
			if r.RSS <= 0 || sum != r.RSS {
				t.Errorf("%+v: rows %v", r, rowsOf(got, r.PID))
			}
			scans++
			// it began to execute another program meanwhile
			if rowsOf(got, r.PID)[growth.KindUnexplained] < -r.RSS/2 {
				off++
			}
		}
	}

	if off > scans/20 {
		t.Errorf("in %d of %d scans more was held than half as much again as is resident", off,
			scans)
	}
}

func sharedFile(t testing.TB, folder string) string {
	t.Helper()
	name := fmt.Sprintf("allocscope-forks-%d-%s", os.Getpid(), filepath.Base(t.TempDir()))
	path := filepath.Join(folder, name)
	t.Cleanup(func() { os.Remove(path) })
	must(t, os.WriteFile(path, make([]byte, 32<<20), 0o600))
	return path
}

// sharedBetween sums the memory of a fact, as all processes and as the tree holds it.
func sharedBetween(s *growth.Snapshot, f fact) (whole, once int64) {
	for _, pid := range processes(s) {
		for _, h := range holdingsOf(s, pid) {
			if f.of(h) {
				whole, once = whole+h.ResidentBytes, once+h.ResidentBytes-h.SharedBytes
			}
		}
	}
	return whole, once
}

// Of 32 MiB one has the first 16, the other those from 8 to 32, and a third the last 8.
func testBreakdownTreePartsFileCount(t *testing.T) {
	for folder, kind := range map[string]growth.Kind{
		"/dev/shm":  growth.KindShmem,
		t.TempDir(): growth.KindFile,
	} {
		path := sharedFile(t, folder)
		target, s := startForks(t)
		fork(t, s, target, "0 fork")
		fork(t, s, target, "1 fork")
		before := treeTotal(balanced(t, s))
		target.Do("0 map "+path+" 0 16", "1 map "+path+" 8 24", "2 map "+path+" 24 8")
		got := balanced(t, s)
		whole, once := sharedBetween(got, fact{"allocscope-forks", kind, 0})
		mustBeNear(t, "the file in all processes", whole, 48<<20)
		mustBeNear(t, "the file in the tree", once, 32<<20)
		mustBeNear(t, "growth of the tree", treeTotal(got)-before, 32<<20)
	}
}

// The kernel's sum of the pages of both, as proportional set size, grows as the tree does.
func testBreakdownTreeForkedChildCopies(t *testing.T) {
	for _, traced := range []bool{false, true} {
		t.Run(fmt.Sprint("traced ", traced), func(t *testing.T) {
			parent, s := openOn(t, startBreakdown(t), tracer.Options{Interval: 1, Children: true})
			held := do(t, parent, "hold_inherited")
			child := startChild(t, parent, "fork", "done")
			awaitMember(t, s, child)
			if traced {
				mustAttach(t, s, child)
			}
			before, pss := balanced(t, s), proportional(t, parent.PID(), child)
			mustReport(t, before, parent.PID(), held)
			mustReport(t, before, child, []fact{
				{"", growth.KindCOW, 0},
				{"", growth.KindInherited, 64 << 20},
			})
			copied := do(t, parent, "child write_inherited")
			after := balanced(t, s)
			mustReport(t, after, parent.PID(), held)
			mustReport(t, after, child, append(copied, fact{"", growth.KindInherited, 48 << 20}))
			mustBeCopiesByTheKernel(t, after, child)
			grown := treeTotal(after) - treeTotal(before)
			mustBeNear(t, "growth of the tree", grown, copied[0].bytes)
			mustBeNear(t, "growth of the tree by its PSS", grown, proportional(t, parent.PID(), child)-pss)
			if r := residentOf(t, after, child); r.Traced != traced || !r.Forked ||
				r.Parent != parent.PID() {
				t.Errorf("%+v of a child that was forked by %d", r, parent.PID())
			}
		})
	}
}

func proportional(t testing.TB, pids ...int) (sum int64) {
	t.Helper()
	for _, pid := range pids {
		sum += rollup(t, pid)["Pss"]
	}
	return sum
}

// mustBeCopiesByTheKernel compares a forked process with smaps_rollup: private dirty pages were
// copied, shared dirty pages are inherited.
func mustBeCopiesByTheKernel(t testing.TB, s *growth.Snapshot, pid int) {
	t.Helper()
	sums, rows := rollup(t, pid), rowsOf(s, pid)
	mustBeNear(t, "copies by their private pages", rows[growth.KindCOW], sums["Private_Dirty"])
	mustBeNear(t, "inherited by its shared pages", rows[growth.KindInherited], sums["Shared_Dirty"])
}

// Nothing is known of the parent.
func testBreakdownTreeForkedChildWithout(t *testing.T) {
	parent := startBreakdown(t)
	do(t, parent, "hold_inherited")
	child := startChild(t, parent, "fork", "done")
	s := open(t, tracer.Options{PID: child, Interval: 1})

	mustReport(t, balanced(t, s), child, []fact{
		{"", growth.KindCOW, 0},
		{"", growth.KindInherited, 64 << 20},
	})

	copied := do(t, parent, "child write_inherited")
	after := balanced(t, s)
	mustReport(t, after, child, append(copied, fact{"", growth.KindInherited, 48 << 20}))
	mustBeCopiesByTheKernel(t, after, child)
	for _, h := range holdingsOf(after, child) {
		if h.SharedBytes != 0 {
			t.Errorf("%d bytes of %s are another's, of which nothing is known", h.SharedBytes,
				h.Kind)
		}
	}
}

func testBreakdownTreeMemoryTwoPrograms(t *testing.T) {
	parent, s := openOn(t, startBreakdown(t), tracer.Options{Interval: 1, Children: true})
	child := startChild(t, parent, "run", "ready")
	awaitMember(t, s, child)
	path := fmt.Sprintf("/dev/shm/allocscope-test-%d-%s", os.Getpid(), filepath.Base(t.TempDir()))
	t.Cleanup(func() { os.Remove(path) })
	do(t, parent, "share_file "+path)
	do(t, parent, "child share_file "+path)
	// Numbers in the name are left out: loaders make thousands of such files.
	want := fact{"allocscope-test-*", growth.KindShmem, 16 << 20}
	got := balanced(t, s)
	mustReport(t, got, parent.PID(), []fact{want})
	mustReport(t, got, child, []fact{want})
	_, once := sharedBetween(got, want)
	mustBeNear(t, "shared memory of the tree", once, want.bytes)
}
