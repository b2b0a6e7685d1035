package tree

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

func TestArrivals(t *testing.T) {
	arrivals := NewArrivals(0)
	scan := func() []Arrival {
		t.Helper()
		return tracertest.Must(arrivals.Scan())(t)
	}

	has := func(found []Arrival, pid int) bool {
		return slices.ContainsFunc(found, func(a Arrival) bool {
			rss, private := a.Memory()
			return a.PID == pid && private > 0 && rss > private
		})
	}

	if first := scan(); len(first) == 0 || has(first, 2) {
		t.Errorf("%d processes at first, or the kernel thread 2", len(first))
	}

	program := tracertest.Build(t, "steps.c")
	target := tracertest.StartCommand(t, exec.Command(program, "one"))
	target.Await("ready")
	if !has(scan(), target.PID()) {
		t.Error("the new process is not found")
	}

	if has(scan(), target.PID()) {
		t.Error("it is found twice")
	}

	target.Say("exec " + program + " two")
	target.Await("ready")
	times := 0
	for range 2 * scansPerRecheck {
		if has(scan(), target.PID()) {
			times++
		}
	}

	if times != 1 {
		t.Errorf("the new program is found %d times", times)
	}

	if found, err := NewArrivals(1000 * time.Hour).Scan(); err != nil || has(found, target.PID()) {
		t.Errorf("a young process is found, %v", err)
	}
}
