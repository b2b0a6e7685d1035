package tracer_test

// Ledgers of processes that fork, exit, stop and follow one another.

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

// startForks starts testdata/forks.py, and traces its root alone.
func startForks(t testing.TB) (*tracertest.Target, *tracer.Session) {
	t.Helper()
	target := tracertest.Start(t, python, tracertest.Source("forks.py"))
	target.Await("ready")
	return target, open(t, tracer.Options{PID: target.PID(), Interval: 1, Children: true})
}

// fork has a process start a child.
func fork(t testing.TB, target *tracertest.Target, order string) (pid int) {
	t.Helper()
	target.Say(order)
	lines := target.Await("done")
	if _, err := fmt.Sscanf(strings.Join(lines, "\n"), "child %d", &pid); err != nil {
		t.Fatalf("the target says %q: %v", lines, err)
	}
	return pid
}

func tell(t testing.TB, target *tracertest.Target, orders ...string) {
	t.Helper()
	for _, order := range orders {
		target.Say(order)
		target.Await("done")
	}
}

// What it copied before anybody looked at it is known from its parent, of which that was known before.
func TestWhatAForkedChildCopiedBeforeItWasLookedAtIsACopy(t *testing.T) {
	target, s := startForks(t)
	tell(t, target, "0 hold 64")
	balanced(t, s)
	balanced(t, s)
	child := fork(t, target, "0 fork")
	tell(t, target, "1 write 16", "1 hold 8", "0 hold 8") // those of both lie at one address
	awaitMember(t, s, child)
	got := balanced(t, s)
	rows, sums := rowsOf(got, child), rollup(t, child)
	mustBeNear(t, "copies, and 8 MiB of its own", rows[growth.KindCOW]+8<<20, sums["Private_Dirty"])
	mustBeNear(t, "inherited", rows[growth.KindInherited], sums["Shared_Dirty"])
	mustBeNear(t, "its own", rows[growth.KindMmap], 8<<20)
}

func TestWhatAChildHasAloneBecauseItsParentExitedIsNoCopy(t *testing.T) {
	target, s := startForks(t)
	middle := fork(t, target, "0 fork")
	tell(t, target, "1 hold 64")
	child := fork(t, target, "1 fork")
	awaitMember(t, s, child)
	tell(t, target, "2 write 16")
	got := balanced(t, s)
	mustBeNear(t, "copies", rowsOf(got, child)[growth.KindCOW], rollup(t, child)["Private_Dirty"])
	tell(t, target, "1 leave")
	awaitNoMember(t, s, middle)
	got = balanced(t, s)
	if rows := rowsOf(got, child); copies(got, child) != 0 || rows[growth.KindInherited] != 0 || rows[growth.KindMmap] < 64<<20 {
		t.Errorf("%v of a child without a parent", rows)
	}
}

// copies are those of what a process has inherited, and not of what it has written to in files.
func copies(s *growth.Snapshot, pid int) (sum int64) {
	for _, h := range holdingsOf(s, pid) {
		if h.Stack.Root == "[copy-on-write]" {
			sum += h.ResidentBytes
		}
	}
	return sum
}

func TestWhatAChildGaveBackAndTouchedAgainIsNoCopy(t *testing.T) {
	target, s := startForks(t)
	tell(t, target, "0 hold 64")
	child := fork(t, target, "0 fork")
	awaitMember(t, s, child)
	tell(t, target, "1 discard 32")
	before := balanced(t, s)
	tell(t, target, "1 write 32")
	after := balanced(t, s)
	mustBeNear(t, "copies", copies(after, child), copies(before, child))
	mustBeNear(t, "its own", rowsOf(after, child)[growth.KindMmap]-rowsOf(before, child)[growth.KindMmap], 32<<20)
}

func awaitNoMember(t testing.TB, s *tracer.Session, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("PID %d is no member", pid), func() bool {
		s.Follow()
		for _, r := range snapshot(t, s).Residents {
			if r.PID == pid {
				return false
			}
		}
		return true
	})
}

func TestWhatAProcessSharesWithItsChildrenAloneIsItsOwn(t *testing.T) {
	target, s := startForks(t)
	tell(t, target, "0 hold 64")
	middle := fork(t, target, "0 fork")
	awaitMember(t, s, middle)
	tell(t, target, "1 hold 32")
	before := balanced(t, s)
	fork(t, target, "1 fork")
	worker := fork(t, target, "1 fork")
	awaitMember(t, s, worker)
	after := balanced(t, s)
	for _, kind := range []growth.Kind{growth.KindMmap, growth.KindInherited, growth.KindCOW} {
		mustBeNear(t, fmt.Sprintf("%s after it has forked", kind), rowsOf(after, middle)[kind], rowsOf(before, middle)[kind])
	}
	mustBeNear(t, "its own", rowsOf(after, middle)[growth.KindMmap], 32<<20)
	mustBeNear(t, "inherited by a worker", rowsOf(after, worker)[growth.KindInherited], rollup(t, worker)["Shared_Dirty"])
	if kinds := rowsOf(after, target.PID()); kinds[growth.KindInherited] != 0 || kinds[growth.KindCOW] != 0 {
		t.Errorf("%v of a root that has forked", kinds)
	}
	mustShareAsTheKernelDoes(t, after)
}

// mustShareAsTheKernelDoes: what is not of files counts once for the tree, as it does in PSS.
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

func TestNothingIsLeftOfWhatAMemberHeldBeforeItExecutedAnotherProgram(t *testing.T) {
	target, s := startForks(t)
	tell(t, target, "0 hold 64")
	child := fork(t, target, "0 fork")
	awaitMember(t, s, child)
	tell(t, target, "1 write 16")
	if r := residentOf(t, balanced(t, s), child); !r.Forked {
		t.Errorf("%+v of a fork", r)
	}
	tell(t, target, "1 execute")
	for range 2 { // known already at the first, without the tree having been scanned
		got := balanced(t, s)
		r, rows := residentOf(t, got, child), rowsOf(got, child)
		if r.Forked || r.RSS > 32<<20 || copies(got, child) != 0 || rows[growth.KindInherited] != 0 {
			t.Errorf("%+v, %v of a program that holds nothing", r, rows)
		}
		s.Follow()
	}
}

func TestAMemberThatHasThePIDOfAnotherIsLookedAtAfresh(t *testing.T) {
	target, s := startForks(t)
	child := fork(t, target, "0 fork")
	awaitMember(t, s, child)
	tell(t, target, "1 hold 64")
	balanced(t, s)
	if pid := fork(t, target, fmt.Sprintf("0 replace %d", child)); pid != child {
		t.Fatalf("PID %d, want %d: the test is wrong", pid, child)
	}
	tell(t, target, "1 hold 8")
	for range 2 { // one notices that there is another process, one looks at it
		s.Follow()
	}
	got := balanced(t, s)
	mustBeNear(t, "its own", rowsOf(got, child)[growth.KindMmap], 8<<20)
	mustBeNear(t, "inherited", rowsOf(got, child)[growth.KindInherited], rollup(t, child)["Shared_Dirty"])
}

func TestProcessesThatAreStoppedAreLookedAt(t *testing.T) {
	target, s := startForks(t)
	child := fork(t, target, "0 fork")
	awaitMember(t, s, child)
	tell(t, target, "1 hold 16", "0 hold 16")
	for _, pid := range []int{child, target.PID()} {
		if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGCONT) })
	}
	eventually(t, "it is stopped", func() bool { return s.Stopped(target.PID()) })
	got := balanced(t, s)
	for _, pid := range []int{child, target.PID()} {
		mustBeNear(t, "mapped", rowsOf(got, pid)[growth.KindMmap], 16<<20)
	}
}

// Whoever exits or executes while it is looked at is left out or adds up.
func TestSnapshotsOfProcessesThatComeAndGoAddUp(t *testing.T) {
	t.Parallel()
	target := tracertest.Start(t, "/bin/bash", "-c", "echo ready; while :; do for i in 1 2 3; do /bin/true | ( exec /bin/true ) & done; wait; done")
	target.Await("ready")
	s := open(t, tracer.Options{PID: target.PID(), Interval: 1, Children: true})
	seen := make(map[int]bool)
	looks, off := 0, 0
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
			looks++
			if rowsOf(got, r.PID)[growth.KindUnexplained] < -r.RSS/2 { // it began to execute another program meanwhile
				off++
			}
		}
	}
	if off > looks/20 {
		t.Errorf("in %d of %d looks more was held than half as much again as is resident", off, looks)
	}
}

// sharedFile makes a file of 32 MiB in memory or on disk.
func sharedFile(t testing.TB, folder string) string {
	t.Helper()
	path := filepath.Join(folder, fmt.Sprintf("allocscope-forks-%d-%s", os.Getpid(), filepath.Base(t.TempDir())))
	t.Cleanup(func() { os.Remove(path) })
	if err := os.WriteFile(path, make([]byte, 32<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Of 32 MiB one has the first 16, the other those from 8 to 32, and a third the last 8.
func TestPartsOfAFileThatProcessesMapFromDifferentPlacesCountOnce(t *testing.T) {
	for folder, kind := range map[string]growth.Kind{"/dev/shm": growth.KindShmem, t.TempDir(): growth.KindFile} {
		path := sharedFile(t, folder)
		target, s := startForks(t)
		awaitMember(t, s, fork(t, target, "0 fork"))
		third := fork(t, target, "1 fork")
		awaitMember(t, s, third)
		before := treeTotal(balanced(t, s))
		tell(t, target, "0 map "+path+" 0 16", "1 map "+path+" 8 24", "2 map "+path+" 24 8")
		got := balanced(t, s)
		var whole, once int64
		for _, pid := range processes(got) {
			for _, h := range holdingsOf(got, pid) {
				if h.Kind == kind && strings.Contains(h.Stack.Root, "allocscope-forks") {
					whole, once = whole+h.ResidentBytes, once+h.ResidentBytes-h.SharedBytes
				}
			}
		}
		mustBeNear(t, "the file in all processes", whole, 48<<20)
		mustBeNear(t, "the file in the tree", once, 32<<20)
		mustBeNear(t, "growth of the tree", treeTotal(got)-before, 32<<20)
	}
}
