package tree

import (
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestSample(t *testing.T) {
	t.Run("counters", func(t *testing.T) {
		j := startJob(t)
		j.order("fork", 2)
		j.order("grow", 64)
		j.scan(0)
		root := j.Sample(time.Second).Processes[0]
		status, err := j.root.Status()
		isSame := root.RSS == status.RSS && root.Anonymous == status.Anonymous && root.Threads == 1
		if err != nil || !isSame || root.Anonymous < 64<<20 {
			t.Errorf("%+v, want %+v, %v", root, status, err)
		}
		if root.Private < 64<<20 || root.PSS < root.Private || root.PSS > root.RSS {
			t.Errorf("PSS %d, private %d, resident %d", root.PSS, root.Private, root.RSS)
		}

		var reads int
		for second := 2; second < 100; second++ {
			for _, s := range j.Sample(time.Duration(second) * time.Second).Processes[1:] {
				if s.PSS != growth.Unknown {
					reads++
				}
			}
		}
		if reads < 10 {
			t.Errorf("the children's PSS was read %d times in 98 s", reads)
		}
	})

	t.Run("exited member is Unknown", func(t *testing.T) {
		j := startJob(t)
		child := j.order("fork", 1)[0]
		j.scan(0)
		j.order("end", child)
		sample := j.Sample(5 * time.Second)
		want := growth.UnknownSample()
		want.Elapsed = 5 * time.Second
		if got := sample.Processes[1]; got.PID != int64(child) || got.Sample != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestCandidates(t *testing.T) {
	t.Run("growth of the last seconds", func(t *testing.T) {
		j := startJob(t)
		j.scan(0)
		j.Sample(0)
		j.order("grow", 20)
		for second := range 60 {
			j.Sample(time.Duration(second) * time.Second)
		}
		if c := j.Candidates(nothingTraced)[0]; c.grown() != 0 || c.Lasting != 0 || c.Private < 20<<20 {
			t.Errorf("grown by %d to %d", c.grown(), c.Private)
		}
		if n := len(j.Members()[0].history); n > 32 {
			t.Errorf("%d samples are kept", n)
		}
	})

	t.Run("growing child of a shell", func(t *testing.T) {
		j := startWrapped(t)
		j.order("grow", 20)
		workers := j.order("fork", 4)
		j.scan(0)
		j.Sample(0)
		child := j.Members()[1].Process.PID
		for _, pid := range workers {
			if got := j.role(pid); got != growth.RoleWorker {
				t.Errorf("worker %d is %q", pid, got)
			}
		}

		d := SelectTraced(j.Candidates(nothingTraced))
		mustBe(t, "traced", d.Trace, child)
		why := d.Selection
		if why.Reason != growth.SelectionTraced || why.Root != j.PID() || why.PID != child ||
			!strings.HasPrefix(why.Command, "/bin/sh -c ") || why.Private>>20 != 20 {
			t.Errorf("%+v", why)
		}

		j.order("grow", 20)
		j.Sample(time.Second)
		d = SelectTraced(j.Candidates(func(pid int) bool { return pid == child }))
		if len(d.Trace) != 0 || d.Selection.Reason != "" {
			t.Errorf("then %+v", d)
		}
		c := j.Candidates(nothingTraced)
		grown := c[1].grown()
		if grown < 20<<20 || grown > 21<<20 || !c[0].Root || c[2].grown() > minGrowthBytes {
			t.Errorf("%+v", c)
		}
	})
}

// The helpers of Python's own multiprocessing are the oracle for the command lines.
func TestRolesOfMultiprocessing(t *testing.T) {
	const script = `
import multiprocessing, sys, time
def start(method):
    context = multiprocessing.get_context(method)
    worker = context.Process(target=time.sleep, args=(1000,), daemon=True)
    worker.start()
    print(worker.pid)
for method in "spawn", "forkserver", "fork": start(method)
print("ready", flush=True)
sys.stdin.read()
`
	target := tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", script))
	workers := target.Await("ready")
	j := &job{target, newTree(t, target.PID()), t}

	worker, other := growth.RoleWorker, growth.RoleOther
	want := []growth.Role{other, other, growth.RoleTrainer, worker, worker, worker}
	j.await("all roles", func(Changes) bool {
		var roles []growth.Role
		for _, m := range j.Members() {
			roles = append(roles, m.Info.Role)
		}
		slices.Sort(roles)
		return slices.Equal(roles, want)
	})
	for _, printed := range workers {
		pid, err := strconv.Atoi(printed)
		if got := j.role(pid); err != nil || got != worker {
			t.Errorf("%d is %q, %v", pid, got, err)
		}
	}
	j.Hangup()
}
