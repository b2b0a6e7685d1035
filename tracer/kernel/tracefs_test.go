package kernel

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/tracertest"
)

// withoutTracefs runs a function on a thread that has mounts of its own, with debugfs and without
// tracefs. They end with the thread.
func withoutTracefs(t *testing.T, test func() error) {
	t.Helper()
	tracertest.NeedsRoot(t)
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with this function
		done <- errors.Join(unmountTracefs(), test())
	}()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func unmountTracefs() error {
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, m := range slices.Backward(tracefsMounts([]byte(mountinfo()))) {
		if err := unix.Unmount(m.path, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmount %s: %w", m.path, err)
		}
	}
	_ = unix.Unmount("/sys/kernel/debug", unix.MNT_DETACH)
	if err := unix.Mount("debugfs", "/sys/kernel/debug", "debugfs", 0, ""); err != nil {
		return fmt.Errorf("mount debugfs: %w", err)
	}
	return nil
}

func mountinfo() string {
	raw, _ := os.ReadFile("/proc/thread-self/mountinfo")
	return string(raw)
}

// mustOpen opens a tracefs at a path, or one of its own if path is empty, and finds a tracepoint in it.
// The list of mounts must stay the same.
func mustOpen(path string) error {
	before := mountinfo()
	tracefs, err := OpenTracefs()
	if err != nil {
		return err
	}
	defer tracefs.Close()

	if path == "" != tracefs.IsOwn() || path != "" && tracefs.directory.Name() != path {
		return fmt.Errorf("opened %s, own %t, want %q", tracefs.directory.Name(), tracefs.IsOwn(), path)
	}
	if id, err := tracefs.EventID("oom", "mark_victim"); err != nil || id == 0 {
		return fmt.Errorf("tracepoint %d, %w", id, err)
	}
	if after := mountinfo(); after != before {
		return fmt.Errorf("mounts before:\n%safter:\n%s", before, after)
	}
	return nil
}

func TestOpenTracefs(t *testing.T) {
	t.Run("its own", func(t *testing.T) {
		withoutTracefs(t, func() error { return mustOpen("") })
	})

	t.Run("the system's", func(t *testing.T) {
		folder := t.TempDir()
		withoutTracefs(t, func() error {
			if err := unix.Mount("tracefs", folder, "tracefs", 0, ""); err != nil {
				return err
			}
			return mustOpen(folder)
		})
	})

	t.Run("another mount hides the system's", func(t *testing.T) {
		folder := t.TempDir()
		withoutTracefs(t, func() error {
			err := errors.Join(
				unix.Mount("tracefs", folder, "tracefs", 0, ""),
				unix.Mount("tmpfs", folder, "tmpfs", 0, ""),
			)
			if err != nil {
				return err
			}
			return mustOpen("")
		})
	})

	t.Run("without CAP_SYS_ADMIN", func(t *testing.T) {
		withoutTracefs(t, func() error {
			header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
			var none [2]unix.CapUserData
			if err := unix.Capset(&header, &none[0]); err != nil {
				return err
			}
			tracefs, err := OpenTracefs()
			want := "mount tracefs: fsopen: operation not permitted"
			if err == nil || err.Error() != want {
				return fmt.Errorf("%v, %w, want %q", tracefs, err, want)
			}
			return nil
		})
	})
}

func TestTracefsMounts(t *testing.T) {
	const raw = "70 60 0:13 / /sys/kernel/debug/tracing rw shared:3 - tracefs tracefs rw\n" +
		"71 60 0:13 / /sys/kernel/tracing rw,nosuid - tracefs tracefs rw\n" +
		"72 60 0:13 /events /srv/events rw - tracefs tracefs rw\n" +
		"73 60 0:14 / /srv/tracefs rw - tmpfs tracefs rw\n" +
		"74 60 0:13 / - tracefs\nx 60 0:13 / /a rw - tracefs tracefs rw\n\n"
	want := []tracefsMount{{71, "/sys/kernel/tracing"}, {70, "/sys/kernel/debug/tracing"}}
	if got := tracefsMounts([]byte(raw)); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestTracefsRemedy(t *testing.T) {
	mounting := func(call string, err error) error {
		return fmt.Errorf("%w: %w", errMountTracefs, os.NewSyscallError(call, err))
	}
	const bind = "in a container bind the host's /sys/kernel/tracing"
	for _, test := range []struct {
		err  error
		want string // is in it; empty: there is none
	}{
		{mounting("fsconfig", unix.EPERM), bind},
		{mounting("fsopen", unix.ENOSYS), bind},
		{mounting("fsopen", unix.ENODEV), "CONFIG_FTRACE_SYSCALLS"},
		{mounting("fsopen", unix.ENOMEM), ""},
		{&os.PathError{Op: "open", Path: tracefsPath, Err: unix.EACCES}, "CAP_DAC_READ_SEARCH"},
		{os.NewSyscallError("perf_event_open", unix.EPERM), ""},
	} {
		got := TracefsRemedy(test.err)
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%v: %q, want %q", test.err, got, test.want)
		}
	}
}
