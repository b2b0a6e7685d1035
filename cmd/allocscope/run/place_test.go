package run

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/shim"
)

// needRoot skips a test that mounts.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("it needs root (run the tests as root)")
	}
}

// mountTmpfs mounts a file system at a new folder.
func mountTmpfs(t *testing.T, folder string, flags uintptr) {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("allocscope-test", folder, "tmpfs", flags, "size=1m"); err != nil {
		t.Fatal(err)
	}
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
	if err := os.Mkdir(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for _, folder := range []string{mounted, stale} {
		file, err := shim.Write(folder)
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}

	removeStale(parent)
	if _, err := os.Stat(files[0].Name()); err != nil {
		t.Errorf("what is on the mount: %v", err)
	}
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is not on the mount: %v, want %v", err, os.ErrNotExist)
	}

	open, err := os.Open(parent)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := openOwn(open, filepath.Base(mounted), unix.O_DIRECTORY); !errors.Is(err, unix.EXDEV) {
		t.Errorf("the mount is opened: %v, want %v", err, unix.EXDEV)
	}
}
