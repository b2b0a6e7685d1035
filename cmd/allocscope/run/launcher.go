package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/run/child"
	"github.com/allocscope/allocscope/cmd/allocscope/user"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/units"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/reexec"
)

// A launcher starts a command and the tracer part, and ends as the command does.
type launcher struct {
	command []string
	flags   *flags
	env     Environment

	owner   folder.Owner // of the command
	path    string       // of its program
	signals chan os.Signal
	witness *witness

	process *exec.Cmd     // the starter, then the command
	preload string        // of the command, before the shim comes to it
	gate    *os.File      // of the starter
	ended   chan struct{} // closed when process has

	conn    *net.UnixConn // to the tracer part
	reports <-chan []byte
	traced  exit.Status // of the trace, once it has ended
}

// run runs the command. It returns where the command was not started; else it ends this process.
func (l *launcher) run() error {
	err := l.prepare()
	if err == nil {
		err = l.start()
	}
	if err != nil {
		l.abort()
		return exit.Refuse(err)
	}

	l.follow()
	l.witness.close()
	l.end(l.process.ProcessState.Sys().(syscall.WaitStatus))
	return nil
}

// prepare finds the command's program, and makes the files that it needs.
func (l *launcher) prepare() (err error) {
	if l.owner, err = folder.OwnerFromEnvironment(os.Getenv); err != nil {
		return err
	}
	search, isSet := os.LookupEnv("PATH")
	if !isSet {
		search = defaultPath
	}
	if l.path, err = findProgram(l.command[0], search); err != nil {
		return err
	}
	if obstacle := shimObstacle(l.path); obstacle != "" {
		slog.Warn(growth.Printable(obstacle))
	}
	l.warnOfSudo()

	l.signals = receiveSignals()
	if l.witness, err = startWitness(); err != nil {
		return fmt.Errorf("start the witness: %w", err)
	}
	return nil
}

// isForOther reports whether the command runs as another user: as the one behind sudo.
func (l *launcher) isForOther() bool { return l.owner.UID != os.Geteuid() }

// warnOfSudo warns of the variables that the command lacks because sudo has dropped them.
func (l *launcher) warnOfSudo() {
	if !l.isForOther() {
		return
	}
	dropped, replaced := droppedBySudo(os.Getppid())
	var parts []string
	if dropped != "" {
		parts = append(parts, "dropped "+dropped)
	}
	if replaced != "" {
		parts = append(parts, "replaced "+replaced)
	}
	if len(parts) > 0 {
		slog.Warn("of your environment sudo has " + strings.Join(parts, ", and ") +
			" (call allocscope run without sudo: it asks for sudo where it needs it)")
	}
}

var errNotReady = errors.New("the tracer part has ended before it was ready")

// start starts the command, once the tracer part is ready. A signal ends it before.
func (l *launcher) start() error {
	if err := l.startStarter(); err != nil {
		return fmt.Errorf("start the command: %w", err)
	}
	elevated, err := l.startTracing()
	if err != nil {
		return err
	}

	for {
		select {
		case err := <-elevated:
			if err != nil {
				return err
			}
			if l.reports == nil {
				return errNotReady
			}
			elevated = nil
		case s := <-l.signals:
			l.abort()
			l.endBy(s.(syscall.Signal))
		case <-l.ended: // by Ctrl-C, say, while sudo asks
			l.abort()
			l.end(l.process.ProcessState.Sys().(syscall.WaitStatus))
		case report, ok := <-l.reports:
			switch {
			case !ok && elevated != nil: // it is sudo that has ended
				l.reports = nil
			case !ok:
				return errNotReady
			case report[0] == reportReady:
				end := "when it ends"
				if d := time.Duration(l.flags.options.Duration); d != 0 {
					end = "after " + units.Duration(d) + ", or " + end
				}
				slog.Info(fmt.Sprintf("tracing PID %d: %s (the result follows %s)",
					l.process.Process.Pid, growth.Printable(strings.Join(l.command, " ")), end))
				return l.openGate(string(report[1:]))
			case report[0] == reportEnded && len(report) == 2: // it has logged why
				l.abort()
				l.env.Flush()
				os.Exit(int(exit.Refused)) // whichever status it has: nothing was started
			}
		}
	}
}

// openGate lets the command start below a shim.
func (l *launcher) openGate(shim string) error {
	if file, err := os.Open(shim); err != nil {
		return fmt.Errorf("find the shim of the tracer part: %w (run both in one mount namespace)",
			err)
	} else if err := file.Close(); err != nil {
		return err
	}
	_, err := l.gate.WriteString(preloadOf(shim, l.preload) + "\x00")
	return errors.Join(err, l.gate.Close())
}

// startStarter starts the process that becomes the command. It has the environment that the command
// is to have.
func (l *launcher) startStarter() error {
	var gate [2]int
	if err := unix.Pipe2(gate[:], unix.O_CLOEXEC); err != nil {
		return os.NewSyscallError("pipe", err)
	}
	defer unix.Close(gate[0])
	l.gate = os.NewFile(uintptr(gate[1]), "gate")

	l.process = user.Command(context.Background(), l.owner, reexec.Executable)
	if l.process.Env == nil {
		l.process.Env = os.Environ()
	}
	l.preload, _ = lookUp(l.process.Env, preloadVariable)
	l.process.Env = withoutPreload(l.process.Env) // the starter sets it
	if _, isSet := lookUp(l.process.Env, "PYTHONMALLOC"); l.flags.pythonObjects && !isSet {
		l.process.Env = append(l.process.Env, "PYTHONMALLOC=malloc")
	}
	starter := child.Starter{
		Gate: gate[0], Ignored: ignored, Blocked: blocked,
		Path: l.path, Command: l.command,
	}
	l.process.Args = starter.Arguments()
	l.process.Stdin, l.process.Stdout, l.process.Stderr = os.Stdin, os.Stdout, os.Stderr

	// The descriptor keeps its number: the user's descriptors keep theirs.
	if _, err := unix.FcntlInt(uintptr(gate[0]), unix.F_SETFD, 0); err != nil {
		return err
	}
	if err := l.process.Start(); err != nil {
		return err
	}
	l.ended = make(chan struct{})
	go func() {
		defer close(l.ended)
		_ = l.process.Wait() // the state has how it has ended
	}()
	return nil
}

// startTracing starts the tracer part, by sudo where this process lacks the privileges. The channel
// has a value when sudo has ended, and is nil without sudo.
func (l *launcher) startTracing() (<-chan error, error) {
	sudo, err := neededSudo()
	if err != nil {
		return nil, err
	}
	conn, other, err := channels()
	if err != nil {
		return nil, err
	}
	defer other.Close()
	l.conn = conn

	var started chan error
	arguments := l.tracerArguments()
	if sudo == "" {
		process, err := startTracer(other, os.Stderr, arguments, withoutPreload(os.Environ()))
		if err != nil {
			return nil, err
		}
		go func() { _, _ = process.Wait() }()
	} else {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		m := tracerRequest{arguments, os.Environ()}
		if err := m.restrict(); err != nil {
			return nil, err
		}
		if err := send(conn, m, os.Stderr); err != nil {
			return nil, err
		}
		warnOfElevation(sudo, self)
		command := exec.Command(sudo, "-k", "--", self, elevatedName) // leaves no ticket
		command.Stdin, command.Stdout, command.Stderr = other, os.Stderr, os.Stderr
		if err := command.Start(); err != nil {
			return nil, fmt.Errorf("start sudo: %w", err)
		}
		started = make(chan error, 1)
		go func() {
			err := command.Wait()
			if err != nil {
				err = fmt.Errorf("trace by sudo: %w (nothing was started)", err)
			}
			started <- err
		}()
	}

	path, err := filepath.Abs(l.path)
	if err != nil {
		return nil, err
	}
	err = send(conn, traceTarget{
		PID: l.process.Process.Pid, Executable: path, Arguments: l.command,
	})
	l.reports = packets(conn)
	return started, err
}

// tracerArguments are the arguments of the tracer part: as the user has typed them, with another
// name.
func (l *launcher) tracerArguments() []string {
	typed := slices.Clone(os.Args[1 : len(os.Args)-len(l.command)])
	if i := slices.Index(typed, Name); i >= 0 {
		typed = slices.Delete(typed, i, i+1)
	}
	if len(typed) == 0 || typed[len(typed)-1] != "--" {
		typed = append(typed, "--")
	}
	return slices.Concat([]string{os.Args[0], TracerName}, typed, l.command)
}

// follow waits until the command and the trace have ended. Until then it passes signals on: those
// that reached this process alone to the command, and after its end to the trace.
func (l *launcher) follow() {
	ended := l.ended
	for ended != nil || l.reports != nil {
		select {
		case s := <-l.signals:
			if ended != nil {
				l.forward(s)
				continue
			}
			l.order(orderInterrupt)
		case <-ended:
			ended = nil
			for len(l.signals) > 0 {
				<-l.signals // of which it may have died
			}
		case report, ok := <-l.reports:
			switch {
			case !ok:
				l.reports, l.traced = nil, exit.Failed
				slog.Warn("the trace was killed: there is no result")
			case report[0] == reportEnded && len(report) == 2:
				l.reports, l.traced = nil, exit.Status(report[1])
			}
		}
	}
}

// forward passes a signal on that the process group has not received.
func (l *launcher) forward(s os.Signal) {
	if !l.witness.isForGroup(s) {
		_ = l.process.Process.Signal(s) // it may have ended
	}
}

func (l *launcher) order(order byte) { _, _ = l.conn.Write([]byte{order}) }

// abort undoes the steps before the start of the command.
func (l *launcher) abort() {
	if l.conn != nil {
		l.order(orderInterrupt)
	}
	if l.gate != nil {
		_ = l.gate.Close()
	}
	if l.ended != nil {
		_ = l.process.Process.Kill()
		<-l.ended
	}
	if l.witness != nil {
		l.witness.close()
	}
}

// end ends this process as the command has ended.
func (l *launcher) end(status syscall.WaitStatus) {
	if status.Signaled() {
		l.endBy(status.Signal())
	}
	code := status.ExitStatus()
	if code == 0 && l.flags.options.FailOn != "" {
		code = int(l.traced)
	}
	l.env.Flush()
	os.Exit(code)
}

func (l *launcher) endBy(s syscall.Signal) {
	l.env.Flush()
	dieBy(s)
	os.Exit(128 + int(s)) // as a shell reports it
}
