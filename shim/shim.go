// Package shim holds the library that `allocscope run` preloads: its C sources, and the libraries
// compiled from them, for both architectures. `make generate` compiles it; the results are
// committed, so that a build needs no clang. docs/internals/shim.md says how it works.
package shim

import (
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:generate ./generate.sh

// The notes of the library: probes.h.
const (
	// MemoryProvider has the probes AllocProbe(object, size, weighted bytes) and FreeProbe(object).
	MemoryProvider = "otel_memory"
	AllocProbe     = "alloc"
	FreeProbe      = "free"
	// AllocFunction has the instruction of AllocProbe.
	AllocFunction = "otel_memory_alloc"

	// Provider has StartProbe, which a program passes when it begins, and instructions that never
	// run: a uprobe on one raises its semaphore in each process. Where the semaphore of HoldProbe
	// is not 0, a program waits at its start until it changes, for MaxHold at most.
	Provider      = "allocscope"
	StartProbe    = "start"
	HoldProbe     = "hold"
	IntervalProbe = "interval"

	MaxHold = 500 * time.Millisecond

	// Markers is the number of notes of IntervalProbe, and of HoldProbe. With uprobes on n of
	// IntervalProbe, MaxMarkers at most, the sampling interval is 2^(MaxMarkers-n) bytes: it only
	// becomes longer while they go one by one. With none it is 512 KiB.
	Markers    = 32
	MaxMarkers = 31
)

// MarkersOf returns the number of markers for an interval, which is rounded down to a power of two.
// Interval 0 is none.
func MarkersOf(interval uint64) int {
	if interval == 0 {
		return 0
	}
	return max(1, MaxMarkers+1-bits.Len64(interval))
}

// Library returns the library for this architecture.
func Library() []byte { return library }

// namePrefix begins the names of the files that Write makes.
const namePrefix = "allocscope_shim_"

// HasName reports whether a path has the name of a file that Write has made.
func HasName(path string) bool { return strings.HasPrefix(filepath.Base(path), namePrefix) }

// Write makes a file of the library in a folder, for one session: uprobes follow the inode, so that
// each session has its own. Nobody can guess its name. The result is open for reading alone. Write
// fails where programs cannot execute the file, or LD_PRELOAD cannot name it.
func Write(dir string) (file *os.File, err error) {
	if strings.ContainsAny(dir, " :") || !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("write shim to %q: LD_PRELOAD cannot name this folder (choose an "+
			"absolute one without spaces and colons)", dir)
	}

	name := fmt.Sprintf(namePrefix+"%.6x_%s.so", sha256.Sum256(library), rand.Text())
	path := filepath.Join(dir, name)
	written, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, fmt.Errorf("write shim: %w", err)
	}

	_, err = written.Write(library)
	if err = errors.Join(err, written.Chmod(0o555)); err == nil {
		file, err = reopen(written)
	}
	err = errors.Join(err, written.Close())
	if err == nil {
		err = checkExecutable(file)
	}
	if err != nil {
		_ = file.Close() // there may be none
		return nil, errors.Join(fmt.Errorf("write shim: %w", err), os.Remove(path))
	}
	return file, nil
}

// reopen opens the very file that another descriptor holds, for reading.
func reopen(file *os.File) (*os.File, error) {
	path := fmt.Sprintf("/proc/self/fd/%d", file.Fd())
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}

// checkExecutable returns an error if a file is on a file system that forbids to execute it.
func checkExecutable(file *os.File) error {
	mapped, err := unix.Mmap(int(file.Fd()), 0, 1, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map %s: %w (choose a folder that is not mounted noexec)", file.Name(), err)
	}
	return unix.Munmap(mapped)
}
