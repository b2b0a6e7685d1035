package process

import (
	"errors"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Held are the words that the kernel holds for a process, and will hand back to it.
type Held struct {
	// Words are the data of epoll instances and the values of POSIX timers.
	Words []uint64
	// IsHidden: it holds more that cannot be read, such as the requests of an io_uring, data in a
	// pipe to the process itself, signals that wait, and the words that a driver has.
	IsHidden bool
}

// Bounds on the open files of a process that are read for Held.
const (
	maxOpenFiles = 1 << 14
	maxFdinfo    = 1 << 20 // bytes of the entries of one epoll instance
	maxTimers    = 1 << 20 // bytes
)

// HeldByKernel returns the words that the kernel holds for the process: pointers may be among them.
// The error wraps os.ErrNotExist if the process is gone.
//
// https://docs.kernel.org/filesystems/proc.html#proc-pid-fdinfo-fd-information-about-opened-file,
// proc_pid_timers(5). A kernel without CONFIG_CHECKPOINT_RESTORE does not list timers.
func (p *Process) HeldByKernel() (held Held, err error) {
	folder, err := p.open("fd")
	if err != nil {
		return held, err
	}
	defer folder.Close()

	names, err := folder.Readdirnames(maxOpenFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return held, err
	}
	held.IsHidden = len(names) == maxOpenFiles
	ends := make(map[string]int) // of pipes, that the process has
	for _, name := range names {
		if _, err := strconv.Atoi(name); err != nil {
			continue
		}
		switch target, _ := os.Readlink(p.path("fd/" + name)); {
		case target == "anon_inode:[io_uring]" || isDriver(target):
			held.IsHidden = true
		case target == "anon_inode:[eventpoll]":
			held.addEntries(p, "fdinfo/"+name)
		case strings.HasPrefix(target, "pipe:"):
			if ends[target]++; ends[target] == 2 && p.hasQueued(name) {
				held.IsHidden = true
			}
		}
	}

	status, err := p.read("status")
	if err != nil {
		return held, err
	}
	pending := strings.Trim(parseFields(status)["ShdPnd"], "0")
	held.IsHidden = held.IsHidden || pending != ""

	timers, err := p.readLocking("timers", maxTimers)
	if err != nil || len(timers) == maxTimers {
		held.IsHidden = true
		return held, nil //nolint:nilerr // the kernel does not say
	}
	held.Words = append(held.Words, timerValues(string(timers))...)
	return held, nil
}

// plainDevices are devices whose drivers hold nothing that a process has given to them.
var plainDevices = []string{
	"null", "zero", "full", "random", "urandom", "tty", "pts/", "ptmx", "console", "shm/", "mqueue/",
}

// isDriver reports whether an open file is of a device whose driver may hold pointers, such as the
// inodes of a file system in user space: /dev/fuse.
func isDriver(file string) bool {
	name, isDevice := strings.CutPrefix(file, "/dev/")
	return isDevice && !slices.ContainsFunc(plainDevices, func(plain string) bool {
		return strings.HasPrefix(name, plain)
	})
}

// hasQueued reports whether a pipe of the process has data, by a copy of its file descriptor that
// is closed at once, or may have some.
func (p *Process) hasQueued(name string) bool {
	number, err := strconv.Atoi(name)
	if err != nil || p.fd < 0 {
		return true
	}
	fd, err := unix.PidfdGetfd(p.fd, number, 0)
	if p.mainDir.Load() != nil { // whose descriptors the pidfd has
		return true
	}
	if err != nil {
		return !errors.Is(err, unix.EBADF) && !errors.Is(err, unix.ESRCH)
	}
	defer unix.Close(fd)
	n, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	return err != nil || n > 0
}

// addEntries adds the data of the entries of an epoll instance.
func (h *Held) addEntries(p *Process, name string) {
	info, err := p.readLocking(name, maxFdinfo)
	if err != nil || len(info) == maxFdinfo {
		h.IsHidden = true
		return
	}
	h.Words = append(h.Words, epollData(string(info))...)
}

// epollData returns the data of the entries in the fdinfo of an epoll instance: "tfd: 5 events: 19
// data: 7ffd0".
func epollData(info string) (data []uint64) {
	for line := range strings.Lines(info) {
		fields := strings.Fields(line)
		if i := slices.Index(fields, "data:"); i >= 0 && i+1 < len(fields) && fields[0] == "tfd:" {
			if word, err := strconv.ParseUint(fields[i+1], 16, 64); err == nil {
				data = append(data, word)
			}
		}
	}
	return data
}

// timerValues returns the values that POSIX timers send: "signal: 60/00007fff86e452a8".
func timerValues(timers string) (values []uint64) {
	for line := range strings.Lines(timers) {
		text, ok := strings.CutPrefix(line, "signal: ")
		_, value, hasValue := strings.Cut(strings.TrimSpace(text), "/")
		if word, err := strconv.ParseUint(value, 16, 64); ok && hasValue && err == nil {
			values = append(values, word)
		}
	}
	return values
}
