package tree

import (
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestMain(m *testing.M) { tracertest.Main(m) }

// A job is the program tree.c, perhaps under a wrapper, and the tree of the started processes.
type job struct {
	*tracertest.Target
	*Tree
	t testing.TB
}

func start(t testing.TB, command *exec.Cmd) *job {
	t.Helper()
	target := tracertest.StartCommand(t, command)
	target.Await("ready")
	return &job{target, newTree(t, target.PID()), t}
}

func startJob(t testing.TB) *job { return start(t, exec.Command(program(t))) }

func startWrapped(t testing.TB) *job {
	return start(t, exec.Command("/bin/sh", "-c", program(t)+"; :"))
}

func program(t testing.TB) string { return tracertest.Build(t, "tree.c") }

func newTree(t testing.TB, pid int) *Tree {
	t.Helper()
	root := tracertest.Must(process.Open(pid))(t)
	tree := New(root, true, nil)
	t.Cleanup(func() {
		tree.Close()
		root.Close()
	})
	return tree
}

// order has an order carried out, and returns the PIDs that it prints.
func (j *job) order(words ...any) []int {
	j.t.Helper()
	line := strings.TrimSpace(fmt.Sprintln(words...))
	j.Say(line)
	var pids []int
	for _, printed := range j.Await("done") {
		pid, err := strconv.Atoi(printed)
		if err != nil {
			j.t.Fatalf("%q prints %q", line, printed)
		}
		pids = append(pids, pid)
	}
	return pids
}

func (j *job) scan(elapsed time.Duration) Changes {
	j.t.Helper()
	return tracertest.Must(j.Scan(elapsed))(j.t)
}

func (j *job) await(what string, holds func(Changes) bool) {
	j.t.Helper()
	tracertest.Eventually(j.t, what, func() bool { return holds(j.scan(0)) })
}

// role of a member; empty if it is none.
func (j *job) role(pid int) growth.Role {
	for _, m := range j.Members() {
		if m.Process.PID == pid {
			return m.Info.Role
		}
	}
	return ""
}

func pidsOf(members []*Member) []int {
	pids := make([]int, len(members))
	for i, m := range members {
		pids[i] = m.Process.PID
	}
	return pids
}

// mustBe compares PIDs in any order.
func mustBe(t *testing.T, what string, got []int, want ...int) {
	t.Helper()
	slices.Sort(got)
	if want = slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func nothingTraced(int) bool { return false }
