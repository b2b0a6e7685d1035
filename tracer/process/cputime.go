package process

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// CPUTime is what the process has taken of processors since it began, in user mode and in the kernel, all its threads together
// and those that have ended. The error wraps unix.ESRCH if the process is gone.
func (p *Process) CPUTime() (time.Duration, error) {
	var used unix.Timespec
	// The clock of another process: MAKE_PROCESS_CPUCLOCK and CPUCLOCK_SCHED, include/linux/posix-timers_types.h.
	const sched = 2
	clock := int32(^p.PID<<3 | sched)
	if err := unix.ClockGettime(clock, &used); err != nil || !p.Alive() {
		return 0, fmt.Errorf("read CPU time of pid %d: %w", p.PID, unix.ESRCH)
	}
	return time.Duration(used.Nano()), nil
}

// OwnCPUTime is that of this process.
func OwnCPUTime() time.Duration {
	var used unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used); err != nil {
		return 0 // cannot happen: the clock always exists
	}
	return time.Duration(used.Nano())
}
