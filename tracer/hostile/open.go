// Package hostile opens and reads files and memory that somebody else controls, who may want the
// reader to come to harm: files at paths of a traced process, files that it has mapped, its files
// in /proc, and its memory.
//
// A read may never return. A file may be on FUSE, whose daemon is a program of any user, a page of
// memory may be one of such a file, and the lock of an address space may be held meanwhile. No
// signal ends some of these waits. So a child process reads in our place, and is given up if it
// does not answer.
package hostile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"time"

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
	// Owner is the user to whom it belonged when it was opened, and Modified when it was last
	// written before.
	Owner    uint32
	Modified time.Time
	// Mount is the number of the mount that it was opened on, as in /proc/PID/mountinfo. No other
	// mount has that number before Close.
	Mount uint64
	// mayStall is set unless a block device holds the file system: reading may wait for another
	// process or for another machine.
	mayStall bool
	isLong   bool // see LongOfProcess
}

// Open opens a file for reading whose path somebody else controls. It refuses all but regular
// files, and files of another type that is allowed (unix.S_IFIFO and the like; 0: none), without
// opening them: that may block, as with a FIFO, or act on a device, as with a watchdog.
//
// folder is an open folder that the path is relative to; nil: the working directory. resolve has
// the restrictions of openat2(2). The path is opened with O_PATH, which has no effect on the file.
// The type is checked on the very file that is then read, even if the path leads elsewhere by now.
// The error wraps ErrStalled if the file system does not answer.
func Open(folder *os.File, path string, resolve uint64, allowed uint32) (*File, error) {
	fd, err := child.open(folder, path, resolve, allowed)
	switch {
	case errors.Is(err, errnoFileType):
		return nil, ErrFileType
	case err != nil:
		return nil, err
	}

	return identify(os.NewFile(uintptr(fd), path))
}

// OpenInRoot opens a regular file as Open does, at a path that is resolved as if root were the root
// directory: no symbolic link or .. leads out of it (openat2(2), RESOLVE_IN_ROOT, Linux 5.6).
// os.Root would refuse the absolute links that are common in system images.
func OpenInRoot(root, path string) (*File, error) {
	folder, err := os.OpenFile(root, unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, fmt.Errorf("open root: %w", err)
	}
	defer folder.Close()

	const inRoot = unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS
	f, err := Open(folder, path, inRoot, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return f, nil
}

// Own returns a File of an open file that allocscope has written. It closes the file with an error.
func Own(file *os.File) (*File, error) { return identify(file) }

// identify returns a File of an open file, or closes it.
func identify(file *os.File) (*File, error) {
	f, fd := &File{file: file}, int(file.Fd())
	var stat unix.Statx_t
	flags := unix.AT_EMPTY_PATH | unix.AT_STATX_DONT_SYNC // does not ask a daemon
	if err := unix.Statx(fd, "", flags, unix.STATX_BASIC_STATS|unix.STATX_MNT_ID, &stat); err != nil {
		return nil, errors.Join(fmt.Errorf("stat: %w", err), f.Close())
	}
	f.size = int64(stat.Size)
	f.Device, f.Inode = unix.Mkdev(stat.Dev_major, stat.Dev_minor), stat.Ino
	f.Mount, f.Owner = stat.Mnt_id, stat.Uid
	f.Modified = time.Unix(stat.Mtime.Sec, int64(stat.Mtime.Nsec))
	f.mayStall = stat.Dev_major == 0
	return f, nil
}

// errnoFileType is ErrFileType where only a number fits.
const errnoFileType = unix.ENOEXEC

// OfProcess returns an open file of a process's folder in /proc.
func OfProcess(file *os.File) *File { return &File{file: file, mayStall: true} }

// LongOfProcess is OfProcess for a file that takes the kernel long to make: others may use the CPU
// meanwhile. smaps_rollup takes 5 ms for each resident GiB, and lets go of the lock of the address
// space where somebody waits for it (since Linux 5.10).
func LongOfProcess(file *os.File) *File { return &File{file: file, mayStall: true, isLong: true} }

// openPath opens a path with O_PATH. It tries again where the kernel asks for that: if something
// was renamed while the kernel followed a "..".
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

// Name is the path that Open was given.
func (f *File) Name() string { return f.file.Name() }

// Size is the size in bytes when the file was opened.
func (f *File) Size() int64 { return f.size }

// ReadAt implements io.ReaderAt. The error wraps ErrStalled if a read has not returned in time, now
// or before.
func (f *File) ReadAt(buffer []byte, offset int64) (read int, err error) {
	if !f.mayStall {
		return f.file.ReadAt(buffer, offset)
	}

	for read < len(buffer) {
		piece := buffer[read:min(len(buffer), read+maxBytes)]
		n, err := f.readPiece(piece, offset+int64(read))
		read += n
		switch {
		case err != nil:
			return read, fmt.Errorf("read %s: %w", f.Name(), err)
		case n < len(piece):
			return read, io.EOF
		}
	}

	return read, nil
}

func (f *File) readPiece(buffer []byte, offset int64) (int, error) {
	if stalled.has(f) {
		return 0, ErrStalled
	}
	operation := readFile
	if f.isLong {
		operation = readLongFile
	}
	n, err := child.readFile(operation, f.file, buffer, offset)
	if errors.Is(err, ErrStalled) {
		stalled.add(f)
	}
	return n, err
}

// stalledFiles are the files that have not answered once, by device and inode. They are not read
// again, however often they are opened. Files of /proc are not among them.
type stalledFiles struct {
	mu    sync.Mutex
	files map[[2]uint64]bool
}

var stalled stalledFiles

func (s *stalledFiles) has(f *File) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[[2]uint64{f.Device, f.Inode}]
}

// add is called maxLost times at most.
func (s *stalledFiles) add(f *File) {
	if f.Inode == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.files == nil {
		s.files = make(map[[2]uint64]bool)
	}
	s.files[[2]uint64{f.Device, f.Inode}] = true
}

// ReadAll reads the file from its start, up to a limit of bytes.
func (f *File) ReadAll(limit int) ([]byte, error) {
	var all []byte
	for len(all) < limit {
		piece := make([]byte, min(limit-len(all), readAllBytes))
		n, err := f.readPiece(piece, int64(len(all)))
		all = append(all, piece[:n]...)
		if err != nil {
			return nil, err
		}
		if n < len(piece) {
			break
		}
	}

	return all, nil
}

const readAllBytes = 64 << 10 // of a piece

// A HeldPath leads the kernel to the very file that a File holds, until that is closed. A change of
// the file's names and mappings does not change that. Probes are attached by a HeldPath alone.
type HeldPath struct{ path string }

// Self leads to the program of this process.
func Self() HeldPath { return HeldPath{"/proc/self/exe"} }

// String returns the path.
func (p HeldPath) String() string { return p.path }

// Path returns the file's path.
func (f *File) Path() HeldPath { return HeldPath{descriptorPath(int(f.file.Fd()))} }

func descriptorPath(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// Duplicate returns another File of the same open file.
func (f *File) Duplicate() (*File, error) {
	fd, err := unix.FcntlInt(f.file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", f.Name(), err)
	}
	return &File{
		file: os.NewFile(uintptr(fd), f.Name()), size: f.size,
		Device: f.Device, Inode: f.Inode, Mount: f.Mount, mayStall: f.mayStall,
	}, nil
}

// Stream returns the open file, for reads that may wait.
func (f *File) Stream() *os.File { return f.file }

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }
