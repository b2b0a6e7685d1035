package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Release returns the release of the running kernel, and whether allocscope supports it: Linux 5.15 or newer.
func Release() (release string, supported bool, err error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", false, fmt.Errorf("read the kernel's release: %w", err)
	}
	release = unix.ByteSliceToString(name.Release[:])

	var major, minor int
	_, err = fmt.Sscanf(release, "%d.%d", &major, &minor)
	return release, err == nil && (major > 5 || major == 5 && minor >= 15), nil
}

// MissingPrivileges returns the capabilities that loading and attaching the BPF programs need and this process lacks.
func MissingPrivileges() ([]string, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return nil, fmt.Errorf("read capabilities: %w", err)
	}
	effective := uint64(data[0].Effective) | uint64(data[1].Effective)<<32

	var missing []string
	for _, need := range []struct {
		name          string
		bit           int
		adminSuffices bool
	}{
		{"CAP_BPF", unix.CAP_BPF, true},
		{"CAP_PERFMON", unix.CAP_PERFMON, true},
		{"CAP_SYS_PTRACE", unix.CAP_SYS_PTRACE, false},
	} {
		isAdmin := need.adminSuffices && effective&(1<<unix.CAP_SYS_ADMIN) != 0
		if !isAdmin && effective&(1<<need.bit) == 0 {
			missing = append(missing, need.name)
		}
	}
	return missing, nil
}

const TracefsPath = "/sys/kernel/tracing"

// TracefsMounted reports whether tracefs is where the system call tracepoints are looked for. It needs no privilege.
func TracefsMounted() bool {
	for _, dir := range []string{TracefsPath, "/sys/kernel/debug/tracing"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) == nil && fs.Type == unix.TRACEFS_MAGIC {
			return true
		}
	}
	return false
}

// EnsureTracefs mounts tracefs where the system has not done so.
func EnsureTracefs() (mounted bool, err error) {
	if TracefsMounted() {
		return false, nil
	}
	if err := unix.Mount("tracefs", TracefsPath, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return false, fmt.Errorf("mount tracefs at %s: %w (mount -t tracefs tracefs %[1]s)", TracefsPath, err)
	}
	return true, nil
}
