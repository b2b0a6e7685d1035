package kernel

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// tracefsPath is where tracefs is mounted on all systems of today.
const tracefsPath = "/sys/kernel/tracing"

// A Tracefs has the numbers of the kernel's tracepoints.
type Tracefs struct {
	directory *os.File
	isOwn     bool
}

// OpenTracefs opens the tracefs that the system has mounted. If there is none, it opens one of its
// own, which no path leads to: nobody else can use it, and the kernel unmounts it when it is closed,
// also if allocscope is killed (fsmount(2)). That takes CAP_SYS_ADMIN. TracefsRemedy says what to do
// about an error.
func OpenTracefs() (*Tracefs, error) {
	directory, err := openMounted()
	if err != nil {
		return nil, err
	}
	if directory != nil {
		return &Tracefs{directory: directory}, nil
	}

	mount, err := mountUnseen("tracefs")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errMountTracefs, err)
	}
	return &Tracefs{directory: os.NewFile(uintptr(mount), tracefsPath), isOwn: true}, nil
}

var errMountTracefs = errors.New("mount tracefs")

// IsOwn reports whether the system has mounted none, so that OpenTracefs opened one of its own.
func (t *Tracefs) IsOwn() bool { return t.isOwn }

// TracefsRemedy returns what to do about an error of OpenTracefs or EventID, or "" if that is not
// known.
func TracefsRemedy(err error) string {
	var file *os.PathError
	switch isMount := errors.Is(err, errMountTracefs); {
	case errors.As(err, &file) && errors.Is(err, os.ErrPermission):
		return "run as root or grant CAP_DAC_READ_SEARCH"
	case isMount && (errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS)):
		return "run as root on the host, or mount it there: mount -t tracefs tracefs " +
			tracefsPath + "; in a container bind the host's " + tracefsPath
	case isMount && errors.Is(err, unix.ENODEV):
		return "use a kernel built with CONFIG_FTRACE_SYSCALLS, as distributions' are"
	}
	return ""
}

// openMounted opens the tracefs that the system has mounted, or returns nil. It looks at the list of
// mounts, as debugfs would mount a tracefs where somebody looks into its folder tracing.
func openMounted() (*os.File, error) {
	// The list of this thread, which equals the process's list except in a test.
	raw, _ := os.ReadFile("/proc/thread-self/mountinfo") // without it there are none
	for _, m := range tracefsMounts(raw) {
		var there unix.Statx_t
		err := unix.Statx(unix.AT_FDCWD, m.path, unix.AT_NO_AUTOMOUNT, unix.STATX_MNT_ID, &there)
		if err == nil && there.Mnt_id != m.id {
			continue // another mount hides it
		}
		directory, err := os.OpenFile(m.path, unix.O_DIRECTORY, 0)
		if err == nil || errors.Is(err, os.ErrPermission) {
			return directory, err
		}
	}
	return nil, nil
}

type tracefsMount struct {
	id   uint64
	path string
}

// tracefsMounts finds the mounts of tracefs in the text of /proc/self/mountinfo
// (proc_pid_mountinfo(5)), that on tracefsPath first. It skips mounts of a folder in it. The kernel
// escapes white space in paths: such a path leads nowhere.
func tracefsMounts(raw []byte) (mounts []tracefsMount) {
	for line := range strings.Lines(string(raw)) {
		// ID parent device root mountpoint options [tags] - type source superoptions
		mount, filesystem, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 || fields[3] != "/" || !strings.HasPrefix(filesystem, "tracefs ") {
			continue
		}
		id, err := strconv.ParseUint(fields[0], 10, 64)
		if err != nil {
			continue
		}

		at := len(mounts)
		if fields[4] == tracefsPath {
			at = 0
		}
		mounts = slices.Insert(mounts, at, tracefsMount{id, fields[4]})
	}
	return mounts
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

// Close closes it. Attached programs stay attached.
func (t *Tracefs) Close() error { return t.directory.Close() }
