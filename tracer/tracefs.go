package tracer

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const tracefsPath = "/sys/kernel/tracing"

// TracefsMounted reports whether system call tracepoints can be found.
func TracefsMounted() bool {
	for _, dir := range []string{tracefsPath, "/sys/kernel/debug/tracing"} {
		if _, err := os.Stat(dir + "/events/syscalls"); err == nil {
			return true
		}
	}
	return false
}

// ensureTracefs mounts tracefs where the system has not done so.
func ensureTracefs() (mounted bool, err error) {
	if TracefsMounted() {
		return false, nil
	}
	if err := unix.Mount("tracefs", tracefsPath, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return false, fmt.Errorf("mount tracefs at %s: %w (mount -t tracefs tracefs %[1]s)", tracefsPath, err)
	}
	if !TracefsMounted() {
		return true, fmt.Errorf("find system call tracepoints in %s: the kernel has none (CONFIG_FTRACE_SYSCALLS)", tracefsPath)
	}
	return true, nil
}
