// Package hostile opens what somebody else controls, who may want the reader to come to harm: files
// at paths of a traced process, and files that it has mapped.
package hostile

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrFileType means that Open has found a file of another type than was asked for.
var ErrFileType = errors.New("not a regular file")

// A File is open for reading. Its methods may be called concurrently.
type File struct {
	file *os.File
	size int64
	// Device and Inode identify the file.
	Device, Inode uint64
}

// Open opens a file for reading whose path somebody else controls. It refuses all but regular files,
// and those of the other types (unix.S_IFIFO and the like), without opening them: that may block, as
// with a FIFO, or act on a device, as with a watchdog.
//
// folder is an open folder that the path is relative to, or unix.AT_FDCWD; resolve has the
// restrictions of openat2(2). The path is opened with O_PATH, which has no effect on what it leads to.
// The type is that of the very file that is then read, even if the path leads elsewhere by now.
func Open(folder int, path string, resolve uint64, types ...uint32) (*File, error) {
	fd, err := openPath(folder, path, resolve)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)

	var stat unix.Statx_t
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_BASIC_STATS, &stat)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(append(types, unix.S_IFREG), uint32(stat.Mode)&unix.S_IFMT) {
		return nil, ErrFileType
	}

	opened, err := unix.Open(descriptorPath(fd), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &File{
		file: os.NewFile(uintptr(opened), path), size: int64(stat.Size),
		Device: unix.Mkdev(stat.Dev_major, stat.Dev_minor), Inode: stat.Ino,
	}, nil
}

// openPath opens a path with O_PATH. It tries again where the kernel asks for that: if something was
// renamed while the kernel followed a "..".
func openPath(folder int, path string, resolve uint64) (fd int, err error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: resolve}
	for range 8 {
		fd, err = unix.Openat2(folder, path, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}

func descriptorPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// Name is the path that Open was given.
func (f *File) Name() string { return f.file.Name() }

// Size is the size in bytes when the file was opened.
func (f *File) Size() int64 { return f.size }

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(buffer []byte, offset int64) (int, error) { return f.file.ReadAt(buffer, offset) }

// Path returns a path under which the kernel opens this very file, until Close. What becomes of the
// file's names and mappings does not change that.
func (f *File) Path() string { return descriptorPath(int(f.file.Fd())) }

// Duplicate returns a file of its own for the same open file.
func (f *File) Duplicate() (*File, error) {
	fd, err := unix.FcntlInt(f.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.file.Name(), err)
	}
	other := *f
	other.file = os.NewFile(uintptr(fd), f.file.Name())
	return &other, nil
}

// Stream returns the open file, for reads that may wait.
func (f *File) Stream() *os.File { return f.file }

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
