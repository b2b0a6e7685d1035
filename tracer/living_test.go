package tracer_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/allocscope/allocscope/tracer/probe"
)

// TestMainThreadEnded traces a process whose main thread has ended before the trace, or ends during
// it: every allocation of the thread that lives counts.
func TestMainThreadEnded(t *testing.T) {
	for _, when := range []string{"before the trace", "during the trace"} {
		t.Run(when, func(t *testing.T) {
			eachMode(t, func(t *testing.T, mode probe.Mode) {
				target := startSteps(t)
				if when == "before the trace" {
					moveThread(t, target.PID(), func() { order(target, "move") })
				}

				options := exactHeap
				options.Mode = mode
				_, s := openOn(t, target, options)
				order(target, "leak 100 1000")
				if when == "during the trace" {
					moveThread(t, target.PID(), func() { order(target, "move") })
					s.Follow()
				}

				order(target, "leak 200 1000")
				mustHoldIn(t, held(snapshot(t, s)), "leak_here", 300, 300_000)
				if m := s.Sample().Members[0]; m.Condition.Remaining != 1 {
					t.Errorf("condition is %+v", m.Condition)
				}
				end(t, s, target)
			})
		})
	}
}

// moveThread waits until the main thread of a process has ended.
func moveThread(t *testing.T, pid int, move func()) {
	t.Helper()
	move()
	eventually(t, "the main thread has ended", func() bool {
		status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
		return err == nil && strings.Contains(string(status), "State:\tZ")
	})
}
