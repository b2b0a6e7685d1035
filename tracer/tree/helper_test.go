package tree

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	tracertest.Cleanup()
	os.Exit(code)
}

// A family is the program family.c, perhaps under a wrapper, and the tree of what was started.
type family struct {
	*tracertest.Target
	*Tree
	t testing.TB
}

// start starts a command in whose tree the program family runs.
func start(t testing.TB, command *exec.Cmd) *family {
	t.Helper()
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	return &family{target, newTree(t, target.PID()), t}
}

func newTree(t testing.TB, pid int) *Tree {
	t.Helper()
	root, err := process.Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	tree := New(root, true)
	t.Cleanup(func() {
		tree.Close()
		root.Close()
	})
	return tree
}

func startFamily(t testing.TB) *family { return start(t, exec.Command(program(t))) }

func program(t testing.TB) string { return tracertest.Build(t, "family.c") }

// order gives an order, and the PIDs that are said.
func (f *family) order(line string) []int {
	f.t.Helper()
	f.Say(line)
	var pids []int
	for _, said := range f.Await("done") {
		pid, err := strconv.Atoi(said)
		if err != nil {
			f.t.Fatalf("%q says %q", line, said)
		}
		pids = append(pids, pid)
	}
	return pids
}

func (f *family) scan(elapsed time.Duration) Changes {
	f.t.Helper()
	changes, err := f.Scan(elapsed)
	if err != nil {
		f.t.Fatal(err)
	}
	return changes
}

// await scans until something holds.
func (f *family) await(what string, holds func(Changes) bool) {
	f.t.Helper()
	for range 1000 {
		if holds(f.scan(0)) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	f.t.Fatalf("%s: not in ten seconds", what)
}

func pidsOf(members []*Member) []int {
	pids := make([]int, len(members))
	for i, m := range members {
		pids[i] = m.Process.PID
	}
	return pids
}

// role of a member; empty if it is none.
func (f *family) role(pid int) growth.Role {
	for _, m := range f.Members() {
		if m.Process.PID == pid {
			return m.Facts.Role
		}
	}
	return ""
}

// none of the processes is traced.
func none(int) bool { return false }
