package process

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/hostile"
)

// procFiles are the files of a process's directory in /proc.
type procFiles struct {
	pid int
	livingThread
	stalled atomic.Bool // the process has not answered once
}

// path returns the path of a file in the /proc directory of a thread that lives, valid until Close.
func (f *procFiles) path(name string) string { return pathIn(f.living(f.pid), name) }

func pathIn(dir *os.File, name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)
}

// open opens a file of the process's /proc directory.
func (f *procFiles) open(name string) (*os.File, error) {
	path := f.path(name)
	fd, err := openFile(path)
	switch {
	case errors.Is(err, unix.ESRCH):
		return nil, os.ErrNotExist
	case err != nil:
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// openFile opens a file of /proc or of a cgroup for reading. os.Open would also try to wait for the
// file, which takes six more system calls.
func openFile(path string) (fd int, err error) {
	for {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != unix.EINTR { //nolint:errorlint // system calls return it alone
			return fd, err
		}
	}
}

// ReadFile is os.ReadFile for a small file of /proc or of a cgroup: see openFile.
func ReadFile(path string) ([]byte, error) {
	fd, err := openFile(path)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)

	const usual = 2048 // bytes
	raw := make([]byte, 0, usual)
	for {
		n, err := unix.Read(fd, raw[len(raw):cap(raw)])
		switch {
		case err == unix.EINTR: //nolint:errorlint // as above
		case err != nil:
			return nil, &os.PathError{Op: "read", Path: path, Err: err}
		case n == 0:
			return raw, nil
		}
		if raw = raw[:len(raw)+max(0, n)]; len(raw) == cap(raw) {
			raw = slices.Grow(raw, cap(raw))
		}
	}
}

// read reads a file of the process's /proc directory. The error names the file, and wraps
// os.ErrNotExist if the process is gone.
func (f *procFiles) read(name string) ([]byte, error) { return readEntry(f.path(name), name) }

// readMain is read for the main thread, which may have ended.
func (f *procFiles) readMain(name string) ([]byte, error) {
	return readEntry(pathIn(f.main(), name), name)
}

func readEntry(path, name string) ([]byte, error) {
	raw, err := ReadFile(path)
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist
	}

	var pathErr *os.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return raw, nil
}

// Bounds on the bytes read of a command line, an environment and the maps, in bytes.
const (
	maxArgumentBytes    = 64 << 10
	maxEnvironmentBytes = 1 << 20
	maxMapsBytes        = 64 << 20
)

// readLocking reads up to limit bytes of a file whose reading takes the lock of the process's
// address space. The process can keep that locked for ever: the error wraps hostile.ErrStalled
// then, now and from now on.
func (f *procFiles) readLocking(name string, limit int) ([]byte, error) {
	return f.readLockingAs(hostile.OfProcess, name, limit)
}

func (f *procFiles) readLockingAs(
	as func(*os.File) *hostile.File, name string, limit int,
) ([]byte, error) {
	if err := f.Stalled(); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	file, err := f.open(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer file.Close()

	raw, err := as(file).ReadAll(limit)
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, f.noteStall(err))
	}
	return raw, nil
}

// noteStall notes and returns an error. If the process has not answered, it is not asked again.
func (f *procFiles) noteStall(err error) error {
	if errors.Is(err, hostile.ErrStalled) {
		f.stalled.Store(true)
	}
	return err
}

// Stalled returns an error that wraps hostile.ErrStalled if the process has not answered once: its
// address space is locked, or a file that it has mapped cannot be read.
func (f *procFiles) Stalled() error {
	if f.stalled.Load() {
		return fmt.Errorf("pid %d: %w", f.pid, hostile.ErrStalled)
	}
	return nil
}
