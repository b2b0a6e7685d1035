package tracer

import (
	"fmt"

	"golang.org/x/sys/unix"
)

const tracefsPath = "/sys/kernel/tracing"

// TracefsMounted reports whether tracefs is where the system call tracepoints are looked for. It needs no privilege.
func TracefsMounted() bool {
	for _, dir := range []string{tracefsPath, "/sys/kernel/debug/tracing"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.TRACEFS_MAGIC {
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
	return true, nil
}
