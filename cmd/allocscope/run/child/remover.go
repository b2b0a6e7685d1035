package child

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// RemoverName is of the process that removes the shim's folder, which is its argument: other users
// can read that. Descriptors from 3 on are a pipe, at whose end it begins, a pidfd of the command,
// for whose end it waits, and the open shim and folder.
const RemoverName = "allocscope-remover"

// remover waits until nobody needs the shim, and removes it.
func remover(arguments []string) (status int) {
	signal.Ignore(unix.SIGHUP, unix.SIGINT, unix.SIGTERM) // it ends when all others have
	path, err := os.Readlink("/proc/self/fd/5")
	if len(arguments) != 2 || err != nil {
		return 1
	}
	pipe, command := os.NewFile(3, "pipe"), os.NewFile(4, "command")
	library, lock := os.NewFile(5, path), os.NewFile(6, arguments[1])

	_, _ = readByte(int(pipe.Fd())) // nobody writes to it
	HasEnded(command, true)

	const shortest, longest = 10 * time.Millisecond, 10 * time.Second
	for wait := shortest; ; wait = min(2*wait, longest) {
		err := RemoveUnused(library, lock)
		if !errors.Is(err, ErrUsed) {
			return 0
		}
		time.Sleep(wait)
	}
}

// ErrUsed means that a process has the shim open or mapped.
var ErrUsed = errors.New("a process uses the shim")

// RemoveUnused removes a shim and its folder, both open. It returns ErrUsed if another process has
// mapped the shim: the dynamic linker would complain in each program that it starts.
//
// The kernel grants a lease for writing on a file only if nobody else has it open or mapped
// (fcntl(2)). A file system that grants none has nothing to wait for.
func RemoveUnused(library, folder *os.File) error {
	_, err := unix.FcntlInt(library.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
	if errors.Is(err, unix.EAGAIN) {
		return ErrUsed
	}

	err = unix.Unlinkat(int(folder.Fd()), filepath.Base(library.Name()), 0)
	_, _ = unix.FcntlInt(library.Fd(), unix.F_SETLEASE, unix.F_UNLCK) // who opens it now waits
	if errors.Is(err, unix.ENOENT) {
		err = nil
	}
	return errors.Join(err, os.Remove(folder.Name()))
}

// HasEnded reports whether a process has ended, by its pidfd. It can wait until then.
func HasEnded(process *os.File, wait bool) bool {
	timeout := 0
	if wait {
		timeout = -1
	}
	fds := []unix.PollFd{{Fd: int32(process.Fd()), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, timeout)
		if !errors.Is(err, unix.EINTR) {
			return n > 0 || err != nil
		}
	}
}
