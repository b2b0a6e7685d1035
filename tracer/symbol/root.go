package symbol

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// openInRoot opens a regular file for reading at a path that is resolved as if
// root were the root directory: no symbolic link or .. leads out of it
// (openat2(2), RESOLVE_IN_ROOT, Linux 5.6). os.Root would refuse the absolute
// links that are common in system images.
//
// The file is first opened with O_PATH, which has no effect on what it names:
// a hostile root can hold a FIFO, whose opening blocks, or a link to a device,
// whose opening acts (/dev/watchdog). Only a regular file is then opened for
// reading.
func openInRoot(root, path string) (*os.File, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open root %s: %w", root, err)
	}
	defer unix.Close(dir)

	fd, err := resolve(dir, path)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)

	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return nil, fmt.Errorf("stat %s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("open %s: not a regular file", path)
	}
	return os.OpenFile("/proc/self/fd/"+strconv.Itoa(fd), os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// resolve opens path below dir with O_PATH. It tries again where the kernel
// asks for it: when something was renamed while it followed a "..".
func resolve(dir int, path string) (fd int, err error) {
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	}
	for range 8 {
		fd, err = unix.Openat2(dir, path, &how)
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return fd, err
}
