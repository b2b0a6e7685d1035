package run

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer/tracertest"
)

// needRoot skips a test that mounts.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root (run the tests as root)")
	}
}

var must = tracertest.NoError

// mountTmpfs mounts a file system at a new folder.
func mountTmpfs(t *testing.T, folder string, flags uintptr) {
	t.Helper()
	must(t, os.MkdirAll(folder, 0o755))
	must(t, unix.Mount("allocscope-test", folder, "tmpfs", flags, "size=1m"))
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// Many systems mount /run so that nothing in it can be executed. The next parent is tried then.
func TestPlaceNotExecutable(t *testing.T) {
	needRoot(t)
	parent := t.TempDir()
	mountTmpfs(t, parent, unix.MS_NOEXEC)

	_, err := makePlaceIn(parent, process{uid: os.Geteuid()})
	if !errors.Is(err, unix.EPERM) {
		t.Errorf("makePlaceIn fails with %v, want %v", err, unix.EPERM)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("it has left %v (%v)", left, err)
	}
}

// A user can mount a file system that says that it is root's, and never answers.
func TestStaleMount(t *testing.T) {
	needRoot(t)
	parent := t.TempDir()
	mounted, stale := filepath.Join(parent, folderPrefix+"a"), filepath.Join(parent, folderPrefix+"b")
	mountTmpfs(t, mounted, 0)
	must(t, os.Mkdir(stale, 0o700))
	var files []*os.File
	for _, folder := range []string{mounted, stale} {
		file := tracertest.Must(shim.Write(folder))(t)
		must(t, file.Close())
		files = append(files, file)
	}

	removeStale(parent)
	if _, err := os.Stat(files[0].Name()); err != nil {
		t.Errorf("what is on the mount: %v", err)
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not on the mount: %v, want %v", err, os.ErrNotExist)
	}

	open := tracertest.Must(os.Open(parent))(t)
	defer open.Close()
	if _, err := openOwn(open, filepath.Base(mounted), unix.O_DIRECTORY); !errors.Is(err, unix.EXDEV) {
		t.Errorf("the mount is opened: %v, want %v", err, unix.EXDEV)
	}
}

// The remover may outlive the command for long. It does not inherit the files that the caller has
// open.
func TestRemoverInherits(t *testing.T) {
	held := tracertest.Must(os.Create(filepath.Join(t.TempDir(), "held")))(t)
	defer held.Close()
	const beyond = 64 // those that the remover is given
	inherited := tracertest.Must(unix.FcntlInt(held.Fd(), unix.F_DUPFD, beyond))(t)
	t.Cleanup(func() { _ = unix.Close(inherited) })

	sleep := exec.Command("sleep", "60")
	must(t, sleep.Start())
	command := tracertest.Must(openProcess(sleep.Process.Pid))(t)
	t.Cleanup(func() { _ = command.file.Close() })

	p, err := makePlaceIn(t.TempDir(), command)
	if err == nil {
		t.Cleanup(func() { p.remove(command) })
	}
	t.Cleanup(func() { _, _ = sleep.Process.Kill(), sleep.Wait() })
	must(t, err)

	open, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.remover.Pid))
	if err != nil || len(open) == 0 {
		t.Fatalf("what the remover has open: %v (%v)", open, err)
	}
	for _, link := range open {
		if path, _ := os.Readlink(link); path == held.Name() {
			t.Errorf("the remover has %s open as %s", path, link)
		}
	}
}
