// Package child has the two child processes of `allocscope run`, which are the running executable
// once more, under other names. Their init function takes over before most of the program has
// started. The package imports hardly anything, so that they start fast.
package child

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Executable is the program of the children.
const Executable = "/proc/self/exe"

// Names of the children: their argument 0.
const (
	// StarterName is of the process that becomes the command. Its arguments are those of Starter.
	StarterName = "allocscope-starter"
	// WitnessName is of the process that reports which signals its process group has received. It
	// answers each byte of its input with a Signals, and exits at the end of its input.
	WitnessName = "allocscope-witness"
)

// Signals is a set of signals, as the kernel's sigset_t: signal n is bit n-1.
type Signals uint64

// Has reports whether a signal is in the set.
func (s Signals) Has(signal syscall.Signal) bool { return s&(1<<(signal-1)) != 0 }

// List returns the signals of the set.
func (s Signals) List() (list []os.Signal) {
	for ; s != 0; s &= s - 1 {
		list = append(list, syscall.Signal(bits.TrailingZeros64(uint64(s))+1))
	}
	return list
}

// A Starter is what the starter does when its launcher lets it: it executes a program.
type Starter struct {
	// Gate is a pipe. A byte lets the starter go on; at its end the starter exits.
	Gate int
	// Ignored are the signals that the program is to ignore, as without the Go runtime in between.
	Ignored Signals
	// Preload is the program's LD_PRELOAD.
	Preload string
	// Path is the program's file.
	Path string
	// Command is the program's arguments, from argument 0 on.
	Command []string
}

// Arguments are those of the starter.
func (s *Starter) Arguments() []string {
	return append([]string{
		StarterName, strconv.Itoa(s.Gate), strconv.FormatUint(uint64(s.Ignored), 16), s.Preload,
		s.Path,
	}, s.Command...)
}

// Exit statuses of a command that could not be executed, as shells have them
// (https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_08_02).
const (
	StatusNotExecutable = 126
	StatusNotFound      = 127
)

func init() {
	if len(os.Args) == 0 {
		return
	}
	switch os.Args[0] {
	case StarterName:
		os.Exit(start(os.Args[1:]))
	case WitnessName:
		os.Exit(witness())
	}
}

// start waits at the gate, and executes the program. It returns where that fails.
func start(arguments []string) (status int) {
	const fixed = 4
	if len(arguments) <= fixed {
		return StatusNotExecutable
	}
	gate, err := strconv.Atoi(arguments[0])
	if err != nil {
		return StatusNotExecutable
	}
	ignored, err := strconv.ParseUint(arguments[1], 16, 64)
	if err != nil {
		return StatusNotExecutable
	}
	if readByte(gate) != nil { // the launcher has given up
		return StatusNotExecutable
	}
	unix.CloseOnExec(gate)

	// What is ignored stays so in the program. Handlers, such as those of the Go runtime, do not.
	if list := Signals(ignored).List(); len(list) > 0 {
		signal.Ignore(list...)
	}
	if preload := arguments[2]; preload != "" {
		if err := os.Setenv("LD_PRELOAD", preload); err != nil {
			return StatusNotExecutable
		}
	}

	path, command := arguments[3], arguments[fixed:]
	err = syscall.Exec(path, command, os.Environ())
	if err == syscall.ENOEXEC { // a script without #!, as execvp(3)
		err = syscall.Exec("/bin/sh", append([]string{"/bin/sh", path}, command[1:]...), os.Environ())
	}
	fmt.Fprintf(os.Stderr, "error: run %q: %v\n", path, err)
	if err == syscall.ENOENT {
		return StatusNotFound
	}
	return StatusNotExecutable
}

// readByte reads a byte. It is an error where there is none.
func readByte(fd int) error {
	var data [1]byte
	for {
		n, err := unix.Read(fd, data[:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case n == 0:
			return unix.EPIPE
		}
		return nil
	}
}

// witness answers which signals are pending, and takes them. All are blocked, as the launcher has
// started it: what its process group receives stays pending.
func witness() (status int) {
	for readByte(0) == nil {
		var answer [8]byte
		binary.NativeEndian.PutUint64(answer[:], uint64(takePending()))
		if _, err := unix.Write(1, answer[:]); err != nil {
			return 1
		}
	}
	return 0
}

func takePending() (taken Signals) {
	all, none := ^uint64(0), unix.Timespec{}
	for {
		number, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT,
			uintptr(unsafe.Pointer(&all)), 0, uintptr(unsafe.Pointer(&none)), unsafe.Sizeof(all), 0, 0)
		if errno != 0 {
			return taken
		}
		taken |= 1 << (number - 1)
	}
}
