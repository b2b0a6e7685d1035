// Package process reads what the kernel tells of a running process: identity, memory maps, counters, resident pages and
// the libraries it has loaded. It never writes to the process and never stops it. All that comes from the process itself
// (names, arguments, its memory) is taken for hostile.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// A Process is a running process, held by a pidfd so that a reused PID cannot be taken for it.
type Process struct {
	// PID as our PID namespace counts.
	PID int
	// Name is the kernel's short name of the main thread (comm), printable.
	Name string
	// Arguments of the command line, printable; empty where they cannot be read.
	Arguments []string
	// Executable is the path of the program as the process sees it; empty where it cannot be read.
	Executable string

	// The process's directory in /proc, held open: what is read through it is of this process, or an error once it has died,
	// even if its PID is used again.
	dir   *os.File
	pidfd int
	file  *os.File // of pidfd: who waits for it takes no thread
	watch sync.Once
	ended chan struct{} // closed when its end was seen
}

// Reasons for which a PID cannot be traced.
var (
	ErrNotFound     = errors.New("no such process")
	ErrThread       = errors.New("is a thread, not a process")
	ErrKernelThread = errors.New("is a kernel thread: it has no memory of its own")
	ErrZombie       = errors.New("is a zombie: it has exited and waits for its parent")
	ErrPermission   = errors.New("permission denied")
)

// Open takes hold of the process with that PID. The error wraps one of the reasons above.
func Open(pid int) (*Process, error) {
	p := &Process{PID: pid, pidfd: -1}
	if err := p.hold(); err != nil {
		p.Close()
		return nil, fmt.Errorf("pid %d: %w", pid, err)
	}
	p.describe()
	if _, err := p.Status(); err != nil || !p.Alive() { // both alive: the directory and the pidfd are of one process
		p.Close()
		return nil, fmt.Errorf("pid %d: %w", pid, ErrNotFound)
	}
	return p, nil
}

// hold opens what keeps us from taking another process for this one, and looks at what it is.
func (p *Process) hold() error {
	if p.PID <= 0 {
		return ErrNotFound
	}
	dir, err := os.OpenFile(filepath.Join("/proc", strconv.Itoa(p.PID)), unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("open its directory in /proc: %w", err)
	}
	p.dir = dir
	if err := p.identify(); err != nil { // before the pidfd, which threads do not have
		return err
	}
	if p.pidfd, err = unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK); err != nil {
		return fmt.Errorf("open pidfd: %w", err)
	}
	p.file, p.ended = os.NewFile(uintptr(p.pidfd), "pidfd"), make(chan struct{})
	return nil
}

// identify tells processes from what only looks like one.
func (p *Process) identify() error {
	status, err := p.Status()
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ErrNotFound
	case err != nil:
		return err
	case status.TGID != p.PID:
		return fmt.Errorf("%w (trace its process: --pid %d)", ErrThread, status.TGID)
	case status.State == 'Z' || status.State == 'X':
		return ErrZombie
	case status.Virtual == Unknown:
		return ErrKernelThread
	}
	p.Name = status.Name
	if _, err := os.Readlink(p.path("exe")); errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: it belongs to another user (run as root)", ErrPermission)
	}
	return nil
}

// describe reads what the process executes.
func (p *Process) describe() {
	p.Arguments = p.readArguments()
	p.Executable, _ = os.Readlink(p.path("exe"))
	p.Executable = Printable(strings.ReplaceAll(p.Executable, "\n", `\012`)) // as in the maps
}

// Refresh reads Name, Arguments and Executable again, which change when the process executes another program. Nobody else
// may read them meanwhile. The error wraps os.ErrNotExist if the process is gone.
func (p *Process) Refresh() error {
	status, err := p.Status()
	if err != nil {
		return err
	}
	p.Name = status.Name
	p.describe()
	return nil
}

// Close lets go of the process, which goes on.
func (p *Process) Close() error {
	var errs []error
	if p.pidfd >= 0 {
		errs = append(errs, p.file.Close())
		p.pidfd = -1
	}
	if p.dir != nil {
		errs = append(errs, p.dir.Close())
		p.dir = nil
	}
	return errors.Join(errs...)
}

// Alive reports whether the process has not exited.
func (p *Process) Alive() bool {
	return p.pidfd >= 0 && unix.PidfdSendSignal(p.pidfd, 0, nil, 0) != unix.ESRCH && !exited(p.pidfd)
}

// exited reports whether the process of a pidfd has become a zombie or less.
func exited(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// Exited returns a channel that is closed when the process exits or stop is closed.
func (p *Process) Exited(stop <-chan struct{}) <-chan struct{} {
	p.watch.Do(func() { go p.awaitEnd() })
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-p.ended:
		case <-stop:
		}
	}()
	return done
}

// awaitEnd waits for the end of the process or Close.
func (p *Process) awaitEnd() {
	file, err := p.file.SyscallConn()
	if err == nil && file.Read(func(pidfd uintptr) bool { return exited(int(pidfd)) }) == nil {
		close(p.ended)
	}
}

// path leads to a file of the process's directory, for as long as the process is held.
func (p *Process) path(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", p.dir.Fd(), name)
}

// read reads a file of the process's directory. The error names the file, and wraps os.ErrNotExist if the process is gone.
func (p *Process) read(name string) ([]byte, error) {
	raw, err := os.ReadFile(p.path(name))
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist
	}
	var at *os.PathError
	if errors.As(err, &at) {
		err = at.Err
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return raw, nil
}

// Bounds of what is read of a command line and of an environment, in bytes.
const (
	maxArguments   = 64 << 10
	maxEnvironment = 1 << 20
)

// readSome reads up to limit bytes of a file of the process's directory, which the process may have made as large as it likes.
func (p *Process) readSome(name string, limit int64) ([]byte, error) {
	f, err := os.Open(p.path(name))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, errors.Unwrap(err))
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return raw, nil
}

// Environment gives those of the named variables that were set when the program was executed, printable; what the program
// has set since is not seen. It is empty where the environment cannot be read.
func (p *Process) Environment(names ...string) map[string]string {
	values := make(map[string]string)
	raw, err := p.readSome("environ", maxEnvironment)
	if err != nil {
		return values
	}
	for entry := range bytes.SplitSeq(raw, []byte{0}) {
		if name, value, ok := strings.Cut(string(entry), "="); ok && slices.Contains(names, name) {
			values[name] = Printable(value)
		}
	}
	return values
}

// Root is the process's root directory as we see it.
func (p *Process) Root() string { return p.path("root") }

func (p *Process) readArguments() []string {
	raw, err := p.readSome("cmdline", maxArguments)
	if err != nil || len(raw) == 0 {
		return nil
	}
	fields := bytes.Split(bytes.TrimRight(raw, "\x00"), []byte{0})
	arguments := make([]string, len(fields))
	for i, f := range fields {
		arguments[i] = Printable(string(f))
	}
	return arguments
}

// Command is a short name of what runs: the base names of the program and of the script it runs, if any; of a module its
// name, and of code on the command line that there is some ("sh -c").
func (p *Process) Command() string {
	if len(p.Arguments) == 0 {
		return p.Name
	}
	program := filepath.Base(p.Arguments[0])
	for i, a := range p.Arguments[1:] {
		switch {
		case a == "-c":
			return program + " -c"
		case a == "-m" && i+2 < len(p.Arguments):
			return program + " -m " + p.Arguments[i+2]
		case !strings.HasPrefix(a, "-"):
			return program + " " + filepath.Base(a)
		}
	}
	return program
}

// Printable replaces what could confuse a terminal or a file format: control characters and invalid UTF-8.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(s, "?"))
}
