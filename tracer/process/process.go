// Package process reads the kernel's data about a running process: its identity, memory map,
// counters, resident pages and loaded libraries. It never writes to the process and never stops it.
// Everything that comes from the process itself (names, arguments, its memory) is treated as
// hostile.
package process

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/hostile"
)

// A Process is a running process.
type Process struct {
	counters // read from its files in /proc
	pidfd    // whether it is alive

	// PID in our PID namespace.
	PID int

	// Name is the kernel's short name of the main thread (comm), printable.
	Name string

	// Arguments is the command line, printable; nil where it cannot be read.
	Arguments []string

	// Executable is the path of the program as the process sees it; empty where it cannot be read.
	Executable string

	devices knownDevices
	memory  keptMemory

	heldMu sync.Mutex
	held   []*hostile.File // by Hold
	root   *os.File        // by HoldRoot
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
	p := &Process{PID: pid, pidfd: pidfd{fd: -1}}
	p.pid = pid
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

	return p.openPidfd(p.PID)
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
	case isEnded(status.State):
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
	p.Arguments = p.readCommandLine()

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
	errs := []error{p.closePidfd()}
	errs = append(errs, p.closeFolders())
	p.memory.mu.Lock()
	errs = append(errs, p.memory.close())
	p.memory.mu.Unlock()

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
