package kernel

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// TracefsPath is where tracefs is mounted on all systems of today.
const TracefsPath = "/sys/kernel/tracing"

// A Tracefs has the numbers of the kernel's tracepoints.
type Tracefs struct{ directory *os.File }

// OpenTracefs opens the tracefs that the system has mounted. If there is none, it opens one of its
// own, which no path leads to: nobody else can use it, and the kernel unmounts it when it is closed,
// also if allocscope is killed (fsmount(2)). That takes CAP_SYS_ADMIN.
func OpenTracefs() (*Tracefs, error) {
	if path := mountedTracefs(); path != "" {
		directory, err := os.Open(path)
		return &Tracefs{directory}, err
	}

	mount, err := mountUnseen("tracefs")
	if err != nil {
		return nil, fmt.Errorf("mount tracefs: %w (mount -t tracefs tracefs %s)", err, TracefsPath)
	}
	return &Tracefs{os.NewFile(uintptr(mount), TracefsPath)}, nil
}

// TracefsMounted reports whether the system has mounted tracefs. It needs no privilege.
func TracefsMounted() bool { return mountedTracefs() != "" }

// mountedTracefs returns where tracefs is mounted, or "".
func mountedTracefs() string {
	for _, path := range []string{TracefsPath, "/sys/kernel/debug/tracing"} {
		var fs unix.Statfs_t
		if unix.Statfs(path, &fs) == nil && fs.Type == unix.TRACEFS_MAGIC {
			return path
		}
	}
	return ""
}

// mountUnseen mounts a file system that needs no device, and returns a descriptor of its root.
func mountUnseen(name string) (mount int, err error) {
	context, err := unix.Fsopen(name, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("fsopen", err)
	}
	defer unix.Close(context)

	if err := unix.FsconfigCreate(context); err != nil {
		return -1, os.NewSyscallError("fsconfig", err)
	}

	const attributes = unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV |
		unix.MOUNT_ATTR_NOEXEC
	mount, err = unix.Fsmount(context, unix.FSMOUNT_CLOEXEC, attributes)
	return mount, os.NewSyscallError("fsmount", err)
}

// EventID returns the number of a tracepoint for perf_event_open(2).
func (t *Tracefs) EventID(group, name string) (uint64, error) {
	path := filepath.Join("events", group, name, "id")
	fd, err := unix.Openat(int(t.directory.Fd()), path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		path = filepath.Join(t.directory.Name(), path)
		return 0, &os.PathError{Op: "open", Path: path, Err: err}
	}

	file := os.NewFile(uintptr(fd), path)
	defer file.Close()

	const longestID = 20 // digits
	text, err := io.ReadAll(io.LimitReader(file, longestID+1))
	if err != nil {
		return 0, err
	}

	id, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", path, err)
	}
	return id, nil
}

// Close closes it. What is attached stays attached.
func (t *Tracefs) Close() error { return t.directory.Close() }
