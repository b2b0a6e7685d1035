package tree

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// The helpers of Python's own multiprocessing are the oracle for the command lines that are looked for.
func TestPythonsHelpersHaveTheirRoles(t *testing.T) {
	const script = `
import multiprocessing, sys, time
spawned = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(1000,), daemon=True)
spawned.start()
served = multiprocessing.get_context("forkserver").Process(target=time.sleep, args=(1000,), daemon=True)
served.start()
forked = multiprocessing.get_context("fork").Process(target=time.sleep, args=(1000,), daemon=True)
forked.start()
print(spawned.pid, served.pid, forked.pid, sep="\n")
print("ready", flush=True)
sys.stdin.read()
`
	target := tracertest.StartCommand(t, exec.Command("/usr/bin/python3", "-c", script))
	var workers [3]int
	for i, said := range target.Await("ready") {
		fmt.Sscan(said, &workers[i])
	}
	f := &family{target, newTree(t, target.PID()), t}
	want := []growth.Role{growth.RoleLoaderWorker, growth.RoleLoaderWorker, growth.RoleLoaderWorker, growth.RoleOther, growth.RoleOther, growth.RoleTrainer}
	f.await("all roles", func(Changes) bool {
		var roles []growth.Role
		for _, m := range f.Members() {
			roles = append(roles, m.Facts.Role)
		}
		slices.Sort(roles)
		return slices.Equal(roles, want)
	})
	for _, pid := range workers {
		if got := f.role(pid); got != growth.RoleLoaderWorker {
			t.Errorf("%d is %q", pid, got)
		}
	}
	target.Hangup()
}

func TestAWrappersGrowingChildIsTraced(t *testing.T) {
	f := start(t, exec.Command("/bin/sh", "-c", program(t)+"; :"))
	f.order("grow 20")
	workers := f.order("fork 4")
	f.scan(0)
	f.Sample(0)
	child := f.Members()[1].Process.PID
	for _, pid := range workers {
		if got := f.role(pid); got != growth.RoleLoaderWorker {
			t.Errorf("worker %d is %q", pid, got)
		}
	}
	d := Focus(f.Candidates(none))
	mustBe(t, "traced", d.Trace, []int{child})
	if want := fmt.Sprintf("PID %d is `/bin/sh -c ", f.PID()); !strings.HasPrefix(d.Reason, want) ||
		!strings.Contains(d.Reason, fmt.Sprintf("tracing its child %d, which holds 20.", child)) {
		t.Errorf("%q", d.Reason)
	}
	f.order("grow 20")
	f.Sample(time.Second)
	if d := Focus(f.Candidates(func(pid int) bool { return pid == child })); len(d.Trace) != 0 || d.Reason != "" {
		t.Errorf("then %+v", d)
	}
	candidates := f.Candidates(none)
	if c := candidates[1]; c.grown() < 20<<20 || c.grown() > 21<<20 || !candidates[0].Root || candidates[2].grown() > minGrowth {
		t.Errorf("%+v", candidates)
	}
}
