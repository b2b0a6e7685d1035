package process

import (
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// pidfd holds a process, so that a reused PID is never mistaken for it.
type pidfd struct {
	fd   int      // -1: not open
	file *os.File // of fd; the runtime's poller waits on it without a thread

	awaitOnce sync.Once
	exited    chan struct{} // closed when awaitExit has seen the exit
}

func (f *pidfd) openPidfd(pid int) (err error) {
	if f.fd, err = unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK); err != nil {
		return fmt.Errorf("open pidfd: %w", err)
	}
	f.file = os.NewFile(uintptr(f.fd), "pidfd")
	f.exited = make(chan struct{})
	return nil
}

func (f *pidfd) closePidfd() error {
	if f.fd < 0 {
		return nil
	}
	f.fd = -1
	return f.file.Close()
}

// Alive reports whether the process has not exited. A zombie is not alive.
func (f *pidfd) Alive() bool {
	return f.fd >= 0 &&
		unix.PidfdSendSignal(f.fd, 0, nil, 0) != unix.ESRCH &&
		!hasExited(f.fd)
}

// hasExited reports whether the process of a pidfd has become a zombie or has been reaped.
func hasExited(fd int) bool {
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// Exited returns a channel that is closed when the process exits or stop is closed.
func (f *pidfd) Exited(stop <-chan struct{}) <-chan struct{} {
	f.awaitOnce.Do(func() { go f.awaitExit() })

	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-f.exited:
		case <-stop:
		}
	}()
	return done
}

// awaitExit waits for the exit of the process or for Close.
func (f *pidfd) awaitExit() {
	conn, err := f.file.SyscallConn()
	if err != nil {
		return
	}
	if conn.Read(func(fd uintptr) bool { return hasExited(int(fd)) }) == nil {
		close(f.exited)
	}
}
