// Package child has the two child processes of `allocscope run`, which are the running executable
// once more, under other names. Their init function takes over before most of the program has
// started. The package imports hardly anything, so that they start fast.
package child

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/tracer/reexec"
)

// Names of the children: their argument 0.
const (
	// StarterName is of the process that becomes the command. Its arguments come from Starter.
	StarterName = "allocscope-starter"
	// WitnessName is of the process that reports which of the signals Forwarded its process group
	// has received. It answers each byte of its input with a Signals, and exits at the end of its
	// input.
	WitnessName = "allocscope-witness"
)

// Forwarded are the signals that the launcher passes on to the command.
var Forwarded = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTERM,
}

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

// A Starter is the task of the starter once its launcher lets it: it executes a program.
type Starter struct {
	// Gate is a pipe. The program's LD_PRELOAD and a zero let the starter go on: other users can read
	// the arguments of a process, and so learn the path of the shim. At its end the starter exits.
	Gate int
	// Ignored and Blocked are the program's signals, as without the Go runtime in between.
	Ignored, Blocked Signals
	// Path is the program's file.
	Path string
	// Command is the program's arguments, from argument 0 on.
	Command []string
}

// Arguments are the starter's.
func (s *Starter) Arguments() []string {
	return append([]string{
		StarterName, strconv.Itoa(s.Gate), strconv.FormatUint(uint64(s.Ignored), 16),
		strconv.FormatUint(uint64(s.Blocked), 16), s.Path,
	}, s.Command...)
}

// Exit statuses of a command that could not be executed, as shells have them
// (https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_08_02).
const (
	StatusNotExecutable = 126
	StatusNotFound      = 127
)

func init() {
	reexec.Register(StarterName, start)
	reexec.Register(WitnessName, witness)
	reexec.Register(RemoverName, remover)
}

// parse returns the starter of such arguments.
func parse(arguments []string) (s Starter, err error) {
	const fixed = 5
	if len(arguments) <= fixed {
		return s, unix.EINVAL
	}
	numbers := make([]uint64, 2)
	for i := range numbers {
		if numbers[i], err = strconv.ParseUint(arguments[2+i], 16, 64); err != nil {
			return s, err
		}
	}
	s.Gate, err = strconv.Atoi(arguments[1])
	s.Ignored, s.Blocked = Signals(numbers[0]), Signals(numbers[1])
	s.Path, s.Command = arguments[4], arguments[fixed:]
	return s, err
}

// start waits at the gate, and executes the program. It returns where that fails.
func start(arguments []string) (status int) {
	s, err := parse(arguments)
	var preload string
	if err == nil {
		preload, err = readText(s.Gate)
	}
	if err != nil { // the launcher has given up
		return StatusNotExecutable
	}

	err = s.execute(preload)
	fmt.Fprintf(os.Stderr, "error: run %s: %v\n", strconv.Quote(s.Path), err)
	if errors.Is(err, unix.ENOENT) {
		return StatusNotFound
	}
	return StatusNotExecutable
}

// execute executes the program. It returns where that fails.
func (s *Starter) execute(preload string) error {
	unix.CloseOnExec(s.Gate)
	if err := os.Setenv("LD_PRELOAD", preload); err != nil {
		return err
	}

	// An ignored signal stays so in the program. Handlers, such as the Go runtime's, do not stay.
	if list := s.Ignored.List(); len(list) > 0 {
		signal.Ignore(list...)
	}
	runtime.LockOSThread()
	if err := setBlocked(&s.Blocked, nil); err != nil {
		return err
	}

	err := syscall.Exec(s.Path, s.Command, os.Environ())
	if errors.Is(err, unix.ENOEXEC) { // a script without #!, as execvp(3)
		script := append([]string{"/bin/sh", s.Path}, s.Command[1:]...)
		err = syscall.Exec(script[0], script, os.Environ())
	}
	return err
}

// setBlocked sets and returns the signals that are blocked in this thread, as rt_sigprocmask(2).
func setBlocked(blocked, before *Signals) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK,
		uintptr(unsafe.Pointer(blocked)), uintptr(unsafe.Pointer(before)), unsafe.Sizeof(*before),
		0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// StartBlocked calls a function that starts a process, in which all signals are blocked. Go's
// runtime leaves those so that stop a process.
func StartBlocked(start func() error) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // which ends with the goroutine
		all := ^Signals(0)
		err := setBlocked(&all, nil)
		if err == nil {
			err = start()
		}
		started <- err
	}()
	return <-started
}

// readText reads a text that ends with a zero.
func readText(fd int) (string, error) {
	var text []byte
	for {
		next, err := readByte(fd)
		if err != nil {
			return "", err
		}
		if next == 0 {
			return string(text), nil
		}
		text = append(text, next)
	}
}

// readByte reads a byte. It is an error where there is none.
func readByte(fd int) (byte, error) {
	var data [1]byte
	for {
		n, err := unix.Read(fd, data[:])
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, unix.EPIPE
		}
		return data[0], nil
	}
}

// witness answers which signals it has received. The launcher has blocked all, but Go's runtime
// unblocks those that end a process: it catches them.
func witness([]string) (status int) {
	received := make(chan os.Signal, 64)
	signal.Notify(received, Forwarded...)

	for {
		if _, err := readByte(0); err != nil {
			return 0
		}
		var taken Signals
		for len(received) > 0 {
			taken |= 1 << ((<-received).(syscall.Signal) - 1)
		}
		var answer [8]byte
		binary.NativeEndian.PutUint64(answer[:], uint64(taken))
		if _, err := unix.Write(1, answer[:]); err != nil {
			return 1
		}
	}
}
