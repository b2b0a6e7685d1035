package run

import (
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/run/child"
	"github.com/allocscope/allocscope/tracer/reexec"
)

// ignored and blocked are the signals that allocscope was started with so. They are so in the
// command.
var ignored, blocked = child.AtStart()

// receiveSignals receives the signals that are forwarded. Those that are ignored remain so.
func receiveSignals() chan os.Signal {
	signals := make(chan os.Signal, 64)
	for _, s := range child.Forwarded {
		if ignored.Has(s.(syscall.Signal)) {
			signal.Ignore(s)
			continue
		}
		signal.Notify(signals, s)
	}

	// The command's exit status must not get lost with the reader of standard error.
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	return signals
}

// A witness is a process of the launcher's process group that receives the signals of the group: a
// signal that the launcher alone receives is for the command as well, and a signal to the group has
// reached it.
type witness struct {
	process *exec.Cmd
	ask     *os.File
	answers *os.File
	// seen is when the group was found to have received a signal.
	seen map[os.Signal]time.Time
}

const (
	// answerTimeout is of a witness that does not run: it is stopped.
	answerTimeout = 10 * time.Second
	// recheckTime is between two questions. The signal may reach the witness after the launcher.
	recheckTime = 10 * time.Millisecond
	rechecks    = 10
	// repeatTime is how long the signals of a burst may be in coming. The kernel merges signals
	// that are pending, perhaps of the witness alone.
	repeatTime = time.Second
)

func startWitness() (*witness, error) {
	w := &witness{seen: make(map[os.Signal]time.Time)}
	return w, w.start()
}

func (w *witness) start() (err error) {
	w.process, w.ask, w.answers, err = startWitnessProcess()
	return err
}

// startWitnessProcess starts the child. It returns its standard input and output.
func startWitnessProcess() (process *exec.Cmd, in, out *os.File, err error) {
	inRead, in, err := os.Pipe()
	if err != nil {
		return nil, nil, nil, err
	}
	defer inRead.Close()
	out, outWrite, err := os.Pipe()
	if err != nil {
		_ = in.Close()
		return nil, nil, nil, err
	}
	defer outWrite.Close()

	process = &exec.Cmd{
		Path: reexec.Executable, Args: []string{child.WitnessName}, Dir: "/",
		Stdin: inRead, Stdout: outWrite, Env: append(withoutPreload(os.Environ()), "GOMAXPROCS=2"),
	}
	if err := child.StartBlocked(process.Start); err != nil {
		_, _ = in.Close(), out.Close()
		return nil, nil, nil, err
	}
	return process, in, out, nil
}

// isForGroup reports whether the process group has received a signal that the launcher has. Where
// the witness does not know, signals of terminals are taken as the group's.
func (w *witness) isForGroup(s os.Signal) bool {
	for range rechecks {
		if err := w.update(); err != nil {
			w.close()
			_ = w.start() // where it fails, the next answer is missing too
			return s == unix.SIGINT || s == unix.SIGQUIT || s == unix.SIGHUP
		}
		if time.Since(w.seen[s]) <= repeatTime {
			return true
		}
		time.Sleep(recheckTime)
	}
	return false
}

// update asks which signals the group has received.
func (w *witness) update() error {
	var answer [8]byte
	if err := w.answers.SetReadDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if _, err := w.ask.Write([]byte{0}); err != nil {
		return err
	}
	if _, err := io.ReadFull(w.answers, answer[:]); err != nil {
		return err
	}
	for _, s := range child.Signals(binary.NativeEndian.Uint64(answer[:])).List() {
		w.seen[s] = time.Now()
	}
	return nil
}

// close ends the witness.
func (w *witness) close() {
	_, _ = w.ask.Close(), w.answers.Close()
	if w.process != nil {
		_ = w.process.Process.Kill()
		_ = w.process.Wait()
	}
}

// dieBy ends this process by a signal, as the command was, so that a shell sees the same. The core
// file is the command's alone.
func dieBy(s syscall.Signal) {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	signal.Reset(s)

	// struct sigaction of the kernel: handler, flags, restorer, mask. Zeros are SIG_DFL.
	var byDefault [4]uint64
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(&byDefault)), 0, unsafe.Sizeof(uint64(0)), 0, 0)
	if unix.Kill(os.Getpid(), s) == nil {
		time.Sleep(time.Second) // it is blocked
	}
}
