package hostile

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// undisturbed is the scheduling policy of a thread that holds the lock of a target's address space:
// if it had to wait for a CPU then, so would each thread of the target that maps memory. A nice
// value is not enough, since the kernel divides CPU time among groups of processes first.
var undisturbed = unix.SchedAttr{Policy: unix.SCHED_FIFO, Priority: 1}

// Undisturbed makes a short system call that holds the lock of a target's address space. The thread
// does not wait for a CPU meanwhile. Without CAP_SYS_NICE, or in a cgroup without a real-time
// share, it may have to.
func Undisturbed(call func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := unix.SchedGetAttr(0, 0)
	if err != nil || unix.SchedSetAttr(0, &undisturbed, 0) != nil {
		call()
		return
	}

	call()
	now, err := unix.SchedGetAttr(0, 0)
	if err == nil && now.Policy == undisturbed.Policy { // else another process has set a policy
		_ = unix.SchedSetAttr(0, before, 0)
	}
}
