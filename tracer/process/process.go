// Package process reads the kernel's data about a running process: its identity, memory map,
// counters, resident pages and loaded libraries. It never writes to the process and never stops it.
// Everything that comes from the process itself (names, arguments, its memory) is treated as
// hostile.
package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
)

// A Process is a running process. A pidfd holds it, so that a reused PID is never mistaken for it.
type Process struct {
	// PID in our PID namespace.
	PID int

	// Name is the kernel's short name of the main thread (comm), printable.
	Name string

	// Arguments is the command line, printable; nil where it cannot be read.
	Arguments []string

	// Executable is the path of the program as the process sees it; empty where it cannot be read.
	Executable string

	// dir is the process's directory in /proc, held open. Reads through it reach this process, or
	// fail once it has exited, even if its PID is used again.
	dir *os.File

	pidfd     int      // -1: not open
	pidfdFile *os.File // of pidfd; the runtime's poller waits on it without a thread

	stalled atomic.Bool // it has not answered once
	devices knownDevices

	heldMu sync.Mutex
	held   []*hostile.File // by Hold
	root   *os.File        // by HoldRoot

	awaitOnce sync.Once
	exited    chan struct{} // closed when awaitExit has seen the exit
}

// Reasons why a PID cannot be traced.
var (
	ErrNotFound     = errors.New("no such process")
	ErrThread       = errors.New("is a thread, not a process")
	ErrKernelThread = errors.New("is a kernel thread: it has no memory of its own")
	ErrZombie       = errors.New("is a zombie: it has exited and waits for its parent")
	ErrPermission   = errors.New("permission denied")
)

// Open opens the process with a PID. The error wraps one of the reasons above.
func Open(pid int) (*Process, error) {
	p, err := OpenAny(pid)
	if err != nil {
		return nil, err
	}
	if err := p.checkPermission(); err != nil {
		_ = p.Close()
		return nil, fmt.Errorf("pid %d: %w", pid, err)
	}
	return p, nil
}

// OpenAny is Open for a process of which only the files that every user may read are needed: its
// Executable, memory map and environment may be out of reach.
func OpenAny(pid int) (*Process, error) {
	p := &Process{PID: pid, pidfd: -1}
	if err := p.openHandles(); err != nil {
		p.Close()
		return nil, fmt.Errorf("pid %d: %w", pid, err)
	}

	p.readDescription()

	// If both are alive now, the directory and the pidfd belong to one process.
	if _, err := p.Status(); err != nil || !p.Alive() {
		p.Close()
		return nil, fmt.Errorf("pid %d: %w", pid, ErrNotFound)
	}

	return p, nil
}

// openHandles opens the directory in /proc and the pidfd, and refuses a process that cannot be
// traced.
func (p *Process) openHandles() error {
	if p.PID <= 0 {
		return ErrNotFound
	}

	path := filepath.Join("/proc", strconv.Itoa(p.PID))
	dir, err := os.OpenFile(path, unix.O_PATH|unix.O_DIRECTORY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return ErrNotFound
	}
	if err != nil {
		return fmt.Errorf("open its directory in /proc: %w", err)
	}
	p.dir = dir

	if err := p.checkTraceable(); err != nil { // before the pidfd, which threads do not have
		return err
	}

	if p.pidfd, err = unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK); err != nil {
		return fmt.Errorf("open pidfd: %w", err)
	}
	p.pidfdFile = os.NewFile(uintptr(p.pidfd), "pidfd")
	p.exited = make(chan struct{})

	return nil
}

// checkTraceable refuses threads, zombies and kernel threads.
func (p *Process) checkTraceable() error {
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
	return nil
}

// checkPermission refuses processes that we may not read.
func (p *Process) checkPermission() error {
	if _, err := os.Readlink(p.path("exe")); errors.Is(err, os.ErrPermission) {
		return fmt.Errorf("%w: %s", ErrPermission, permissionRemedy(os.Geteuid()))
	}
	return nil
}

// permissionRemedy returns why a user may not read a process, and what to do. Root lacks a capability,
// as in a container.
func permissionRemedy(uid int) string {
	if uid == 0 {
		return "root lacks a capability here (grant CAP_SYS_PTRACE: --cap-add SYS_PTRACE for a " +
			"container; or run allocscope on the host)"
	}
	return "it is owned by another user, or protected (use sudo, or grant CAP_SYS_PTRACE)"
}

// readDescription reads Arguments and Executable.
func (p *Process) readDescription() {
	p.Arguments = p.readArguments()

	p.Executable, _ = os.Readlink(p.path("exe"))
	p.Executable = growth.Printable(strings.ReplaceAll(p.Executable, "\n", `\012`)) // as in maps
}

// Refresh reads Name, Arguments and Executable again, which change when the process executes
// another program. The caller must keep other goroutines from reading them meanwhile. The error
// wraps os.ErrNotExist if the process is gone.
func (p *Process) Refresh() error {
	status, err := p.Status()
	if err != nil {
		return err
	}
	p.Name = status.Name
	p.readDescription()
	return nil
}

// Close releases the descriptors. The process itself goes on.
func (p *Process) Close() error {
	var errs []error
	if p.pidfd >= 0 {
		errs = append(errs, p.pidfdFile.Close())
		p.pidfd = -1
	}
	if p.dir != nil {
		errs = append(errs, p.dir.Close())
		p.dir = nil
	}

	p.heldMu.Lock()
	defer p.heldMu.Unlock()
	for _, h := range p.held {
		errs = append(errs, h.Close())
	}
	p.held = nil
	if p.root != nil {
		errs = append(errs, p.root.Close())
		p.root = nil
	}
	return errors.Join(errs...)
}

// Alive reports whether the process has not exited. A zombie is not alive.
func (p *Process) Alive() bool {
	return p.pidfd >= 0 &&
		unix.PidfdSendSignal(p.pidfd, 0, nil, 0) != unix.ESRCH &&
		!hasExited(p.pidfd)
}

// hasExited reports whether the process of a pidfd has become a zombie or has been reaped.
func hasExited(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// Exited returns a channel that is closed when the process exits or stop is closed.
func (p *Process) Exited(stop <-chan struct{}) <-chan struct{} {
	p.awaitOnce.Do(func() { go p.awaitExit() })

	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-p.exited:
		case <-stop:
		}
	}()
	return done
}

// awaitExit waits for the exit of the process or for Close.
func (p *Process) awaitExit() {
	conn, err := p.pidfdFile.SyscallConn()
	if err != nil {
		return
	}
	if conn.Read(func(pidfd uintptr) bool { return hasExited(int(pidfd)) }) == nil {
		close(p.exited)
	}
}

// path returns the path of a file in the process's /proc directory, valid until Close.
func (p *Process) path(name string) string {
	return fmt.Sprintf("/proc/self/fd/%d/%s", p.dir.Fd(), name)
}

// HoldRoot keeps the process's root directory until Close, and returns a path that leads to it until
// then, even when the process is gone. The path is empty if the directory cannot be opened.
func (p *Process) HoldRoot() string {
	p.heldMu.Lock()
	defer p.heldMu.Unlock()

	if p.root == nil {
		root, err := os.OpenFile(p.path("root"), unix.O_PATH|unix.O_DIRECTORY, 0)
		if err != nil {
			return ""
		}
		p.root = root
	}
	return fmt.Sprintf("/proc/self/fd/%d", p.root.Fd())
}

// read reads a file of the process's /proc directory. The error names the file, and wraps
// os.ErrNotExist if the process is gone.
func (p *Process) read(name string) ([]byte, error) {
	raw, err := os.ReadFile(p.path(name))
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

// readLocking reads up to limit bytes of a file whose reading takes the lock of the process's address
// space. The process can keep that locked for ever: the error wraps hostile.ErrStalled then, now and
// from now on.
func (p *Process) readLocking(name string, limit int) ([]byte, error) {
	if err := p.Stalled(); err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	f, err := p.open(name)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	defer f.Close()

	raw, err := hostile.OfProcess(f).ReadAll(limit)
	if errors.Is(err, unix.ESRCH) {
		err = os.ErrNotExist
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, p.noteStall(err))
	}
	return raw, nil
}

// noteStall notes and returns an error. If the process has not answered, it is not asked again.
func (p *Process) noteStall(err error) error {
	if errors.Is(err, hostile.ErrStalled) {
		p.stalled.Store(true)
	}
	return err
}

// Stalled returns an error that wraps hostile.ErrStalled if the process has not answered once: its
// address space is locked, or a file that it has mapped cannot be read.
func (p *Process) Stalled() error {
	if p.stalled.Load() {
		return fmt.Errorf("pid %d: %w", p.PID, hostile.ErrStalled)
	}
	return nil
}

// Environment returns the named variables that were set when the program was executed, printable;
// later calls of setenv do not show. It is empty where the environment cannot be read.
func (p *Process) Environment(names ...string) map[string]string {
	values := make(map[string]string)
	raw, err := p.readLocking("environ", maxEnvironmentBytes)
	if err != nil {
		return values
	}

	for entry := range bytes.SplitSeq(raw, []byte{0}) {
		name, value, ok := strings.Cut(string(entry), "=")
		if ok && slices.Contains(names, name) {
			values[name] = growth.Printable(value)
		}
	}
	return values
}

func (p *Process) readArguments() []string {
	raw, err := p.readLocking("cmdline", maxArgumentBytes)
	if err != nil || len(raw) == 0 {
		return nil
	}

	fields := bytes.Split(bytes.TrimRight(raw, "\x00"), []byte{0})
	arguments := make([]string, len(fields))
	for i, f := range fields {
		arguments[i] = growth.Printable(string(f))
	}
	return arguments
}

// Command returns a short name of the running program: its base name and the base name of the
// script it runs, "-m" with the module, or "-c" for code on the command line. A process can give
// itself any name, so it is cut after maxCommandBytes.
func (p *Process) Command() string { return growth.Truncate(p.command(), maxCommandBytes) }

const maxCommandBytes = 200

func (p *Process) command() string {
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
