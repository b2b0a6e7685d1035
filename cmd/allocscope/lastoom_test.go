package main

import (
	"testing"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
)

// TestLatestOf has the trace that a kill is shown with: of the killed process, or of one beside it,
// such as where allocscope was killed in the container that it traced.
func TestLatestOf(t *testing.T) {
	now := time.Now()
	traces := []foundTrace{
		{started: now.Add(-time.Hour), pids: []int{5, 6}},
		{started: now.Add(-time.Minute), pids: []int{5}},
		{started: now.Add(time.Minute), pids: []int{5}},
		{started: now.Add(-time.Hour), pids: []int{7}},
		{started: now.Add(-time.Hour), pids: []int{11}, exited: now.Add(-30 * time.Minute)},
		{started: now.Add(-time.Hour), pids: []int{12}, exited: now.Add(-time.Second)},
	}
	for name, c := range map[string]struct {
		killed      int
		largest     []int
		want, ofPID int // -1: none
	}{
		"killed process":     {5, []int{7, 5}, 1, 5},
		"worker":             {6, nil, 0, 6},
		"a process beside":   {9, []int{8, 9, 7}, 3, 7},
		"ended by the kill":  {12, nil, 5, 12},
		"a PID used again":   {11, nil, -1, 0},
		"nothing was traced": {9, []int{8, 9}, -1, 0},
	} {
		kill := growth.OOMKill{PID: c.killed, At: process.Monotonic()}
		for _, pid := range c.largest {
			kill.Largest = append(kill.Largest, growth.OOMTask{PID: pid})
		}
		got, pid := latestOf(traces, &kill)
		beside := growth.OOMKill{PID: 1, At: kill.At, Largest: []growth.OOMTask{{PID: 7}}}
		wantKill := c.killed // of several kills, of which the last is beside a traced process
		if c.ofPID != c.killed {
			wantKill = beside.PID
		}
		if last := lastOf([]growth.OOMKill{kill, beside}, traces); last.PID != wantKill {
			t.Errorf("%s: the last kill is of PID %d, want %d", name, last.PID, wantKill)
		}
		if c.want < 0 && got != nil || c.want >= 0 && got != &traces[c.want] || pid != c.ofPID {
			t.Errorf("%s: %+v of PID %d", name, got, pid)
		}
	}
}
