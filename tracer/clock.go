package tracer

import "golang.org/x/sys/unix"

// Monotonic is the time of CLOCK_MONOTONIC, in ns: the clock of the BPF programs.
func monotonic() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0 // cannot happen: the clock always exists
	}
	return uint64(now.Nano())
}
