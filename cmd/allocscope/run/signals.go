package run

import (
	"encoding/binary"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/run/child"
)

// ignored and blocked are the signals that allocscope was started with so. They are so in the
// command.
var ignored, blocked = child.AtStart()

// forwarded are the signals that the launcher passes on to the command.
var forwarded = []os.Signal{
	unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM, unix.SIGTERM,
}

// receiveSignals receives the signals that are forwarded. Those that are ignored remain so.
func receiveSignals() chan os.Signal {
	signals := make(chan os.Signal, 64)
	for _, s := range forwarded {
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

// A witness is a process of the launcher's process group that is sent what the group is sent: what
// the launcher alone receives is for the command as well, and a signal to the group has reached it.
type witness struct {
	process *exec.Cmd
	ask     *os.File
	answers *os.File
	// seen is when the group was found to have received a signal.
	seen map[os.Signal]time.Time
}

const (
	// answerTimeout is of a witness that does not run: it is stopped, or dead.
	answerTimeout = time.Second
	// recheckTime is how long the kernel may take to reach the witness after the launcher.
	recheckTime = 10 * time.Millisecond
	// repeatTime is how long the signals of a burst may be in coming. The kernel merges signals
	// that are pending, perhaps of the witness alone.
	repeatTime = time.Second
)

func startWitness() (*witness, error) {
	w := &witness{seen: make(map[os.Signal]time.Time)}
	var err error
	if w.process, w.ask, w.answers, err = startWitnessProcess(); err != nil {
		return nil, err
	}
	return w, nil
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
		Path: child.Executable, Args: []string{child.WitnessName}, Dir: "/",
		Stdin: inRead, Stdout: outWrite, Env: append(os.Environ(), "GOMAXPROCS=1"),
	}
	if err := child.StartBlocked(process.Start); err != nil {
		_, _ = in.Close(), out.Close()
		return nil, nil, nil, err
	}
	return process, in, out, nil
}

// isForGroup reports whether the process group has received a signal that the launcher has.
func (w *witness) isForGroup(s os.Signal) bool {
	w.update()
	if time.Since(w.seen[s]) > repeatTime {
		time.Sleep(recheckTime)
		w.update()
	}
	return time.Since(w.seen[s]) <= repeatTime
}

// update asks which signals the group has received.
func (w *witness) update() {
	var answer [8]byte
	_ = w.answers.SetReadDeadline(time.Now().Add(answerTimeout))
	if _, err := w.ask.Write([]byte{0}); err != nil {
		return
	}
	if n, err := w.answers.Read(answer[:]); err != nil || n < len(answer) {
		return
	}
	for _, s := range child.Signals(binary.NativeEndian.Uint64(answer[:])).List() {
		w.seen[s] = time.Now()
	}
}

// close ends the witness.
func (w *witness) close() {
	_ = w.ask.Close()
	_ = w.process.Process.Kill()
	_ = w.process.Wait()
	_ = w.answers.Close()
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
