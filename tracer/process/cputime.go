package process

import (
	"fmt"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/hostile"
	"github.com/allocscope/allocscope/tracer/uprobe"
)

// CPUTime is the user and system time of the process since it began, summed over all its threads,
// exited ones included. The error wraps unix.ESRCH if the process is gone.
func (p *Process) CPUTime() (time.Duration, error) {
	used, err := hostile.CPUTimeOf(p.PID)
	if err != nil || !p.Alive() {
		return 0, fmt.Errorf("read CPU time of pid %d: %w", p.PID, unix.ESRCH)
	}
	return used, nil
}

// OwnCPUTime is the CPU time of allocscope's own processes.
func OwnCPUTime() time.Duration {
	return readClock(unix.CLOCK_PROCESS_CPUTIME_ID) + hostile.CPUTime() + uprobe.CPUTime()
}

// MeasureCPUTime runs work on one thread and returns the CPU time it took there, in the kernel too,
// and in the process that reads for us: CPU time of other threads counts, too, if they read
// meanwhile. Time spent waiting for a lock or a CPU does not count: it costs nothing.
func MeasureCPUTime(work func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	began := readClock(unix.CLOCK_THREAD_CPUTIME_ID) + hostile.CPUTime()
	work()
	return readClock(unix.CLOCK_THREAD_CPUTIME_ID) + hostile.CPUTime() - began
}

// Monotonic is the time of CLOCK_MONOTONIC, which is the same in all processes.
func Monotonic() time.Duration { return readClock(unix.CLOCK_MONOTONIC) }

func readClock(clock int32) time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(clock, &used); err != nil {
		return 0 // cannot happen: these clocks always exist
	}
	return time.Duration(used.Nano())
}
