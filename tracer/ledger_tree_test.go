package tracer_test

// Ledgers of processes that share memory: by fork, and by mapping the same.

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// startChild has a program of ledger.c start one that obeys "child ORDER", and returns once it says the word.
func startChild(t testing.TB, parent *tracertest.Target, how, word string) (pid int) {
	t.Helper()
	parent.Say("start_child " + how)
	lines := parent.Await(word)
	if _, err := fmt.Sscanf(strings.Join(lines, "\n"), "child %d", &pid); err != nil {
		t.Fatalf("the target says %q: %v", lines, err)
	}
	return pid
}

// awaitMember returns when a process is a member of the tree.
func awaitMember(t testing.TB, s *tracer.Session, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("PID %d is a member", pid), func() bool {
		s.Follow()
		for _, r := range snapshot(t, s).Residents {
			if r.PID == pid {
				return true
			}
		}
		return false
	})
}

// What the kernel sums of the pages of both, as proportional set size, grows as the tree does.
func TestAForkedChildHasItsCopiesAndInheritsTheRest(t *testing.T) {
	for _, traced := range []bool{false, true} {
		t.Run(fmt.Sprint("traced ", traced), func(t *testing.T) {
			parent := startLedger(t)
			s := open(t, tracer.Options{PID: parent.PID(), Interval: 1, Children: true})
			held := do(t, parent, "hold_inherited")
			child := startChild(t, parent, "fork", "done")
			awaitMember(t, s, child)
			if traced {
				if err := s.Attach(child); err != nil {
					t.Fatal(err)
				}
			}
			before, pss := balanced(t, s), proportional(t, parent.PID(), child)
			mustTell(t, before, parent.PID(), held)
			mustTell(t, before, child, []fact{{"", growth.KindCOW, 0}, {"", growth.KindInherited, 64 << 20}})
			copied := do(t, parent, "child write_inherited")
			after := balanced(t, s)
			mustTell(t, after, parent.PID(), held)
			mustTell(t, after, child, append(copied, fact{"", growth.KindInherited, 48 << 20}))
			mustBeCopiesByTheKernel(t, after, child)
			grown := treeTotal(after) - treeTotal(before)
			mustBeNear(t, "growth of the tree", grown, copied[0].bytes)
			mustBeNear(t, "growth of the tree by its PSS", grown, proportional(t, parent.PID(), child)-pss)
			if r := residentOf(t, after, child); r.Traced != traced || !r.Forked || r.Parent != parent.PID() {
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

// mustBeCopiesByTheKernel: of what a forked process holds, what nobody maps besides was copied, and the rest is inherited.
func mustBeCopiesByTheKernel(t testing.TB, s *growth.Snapshot, pid int) {
	t.Helper()
	sums, rows := rollup(t, pid), rowsOf(s, pid)
	mustBeNear(t, "copies by their private pages", rows[growth.KindCOW], sums["Private_Dirty"])
	mustBeNear(t, "inherited by its shared pages", rows[growth.KindInherited], sums["Shared_Dirty"])
}

// Nothing is known of the parent.
func TestAForkedChildIsTracedWithoutItsParent(t *testing.T) {
	parent := startLedger(t)
	do(t, parent, "hold_inherited")
	child := startChild(t, parent, "fork", "done")
	s := open(t, tracer.Options{PID: child, Interval: 1})
	mustTell(t, balanced(t, s), child, []fact{{"", growth.KindCOW, 0}, {"", growth.KindInherited, 64 << 20}})
	copied := do(t, parent, "child write_inherited")
	after := balanced(t, s)
	mustTell(t, after, child, append(copied, fact{"", growth.KindInherited, 48 << 20}))
	mustBeCopiesByTheKernel(t, after, child)
	for _, h := range holdingsOf(after, child) {
		if h.SharedBytes != 0 {
			t.Errorf("%d bytes of %s are another's, of which nothing is known", h.SharedBytes, h.Kind)
		}
	}
}

// sharedOnce wants that each process holds shared memory whole and that the tree holds it once.
func sharedOnce(t *testing.T, s *growth.Snapshot, name string, pids ...int) {
	t.Helper()
	want := []fact{{name, growth.KindShmem, 16 << 20}}
	var once int64
	for _, pid := range pids {
		mustTell(t, s, pid, want)
		for _, h := range holdingsOf(s, pid) {
			if want[0].of(h) {
				once += h.ResidentBytes - h.SharedBytes
			}
		}
	}
	mustBeNear(t, "shared memory of the tree", once, want[0].bytes)
}

func TestMemoryThatAForkSharesCountsOnceForTheTree(t *testing.T) {
	parent := startLedger(t)
	s := open(t, tracer.Options{PID: parent.PID(), Interval: 1, Children: true})
	do(t, parent, "share_memfd")
	child := startChild(t, parent, "fork", "done")
	awaitMember(t, s, child)
	do(t, parent, "child touch_shared")
	sharedOnce(t, balanced(t, s), "ledger", parent.PID(), child)
}

func TestMemoryThatTwoProgramsShareCountsOnceForTheTree(t *testing.T) {
	parent := startLedger(t)
	s := open(t, tracer.Options{PID: parent.PID(), Interval: 1, Children: true})
	child := startChild(t, parent, "run", "ready")
	awaitMember(t, s, child)
	path := fmt.Sprintf("/dev/shm/allocscope-test-%d-%s", os.Getpid(), filepath.Base(t.TempDir()))
	t.Cleanup(func() { os.Remove(path) })
	do(t, parent, "share_file "+path)
	do(t, parent, "child share_file "+path)
	// Numbers in the name are left out: loaders make thousands of such files.
	sharedOnce(t, balanced(t, s), "allocscope-test-*", parent.PID(), child)
}
