package hostile

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// TestUndisturbed compares the policy of a thread before, within and after a call.
func TestUndisturbed(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs root")
	}
	runtime.LockOSThread() // for good: the thread ends with the test

	policy := func() uint32 {
		now := tracertest.Must(unix.SchedGetAttr(0, 0))(t)
		return now.Policy
	}
	set := func(policy uint32) {
		tracertest.NoError(t, unix.SchedSetAttr(0, &unix.SchedAttr{Policy: policy}, 0))
	}

	for _, before := range []uint32{unix.SCHED_NORMAL, unix.SCHED_IDLE} {
		within := uint32(unix.SCHED_FIFO)
		if err := unix.SchedSetAttr(0, &undisturbed, 0); err != nil {
			within = before // the cgroup of the test has no real-time share (CONFIG_RT_GROUP_SCHED)
		}
		set(before)
		Undisturbed(func() {
			if got := policy(); got != within {
				t.Errorf("policy %d within the call, want %d", got, within)
			}
		})
		if got := policy(); got != before {
			t.Errorf("policy %d after the call, want %d as before", got, before)
		}
	}

	Undisturbed(func() { set(unix.SCHED_NORMAL) }) // as the parent of a search that is in a hurry
	if got := policy(); got != unix.SCHED_NORMAL {
		t.Errorf("policy %d, want SCHED_NORMAL, which was set within the call", got)
	}
}
