package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/record"
	"github.com/allocscope/allocscope/tracer/reexec"
)

// Names of the hidden commands.
const (
	// elevatedName is of the command that sudo executes. It starts the tracer part, and ends: no
	// sudo lives as long as the trace.
	elevatedName = "run-elevated"
	// TracerName is of the tracer part.
	TracerName = "run-tracer"
)

func newElevatedCommand() *cobra.Command {
	return &cobra.Command{
		Use: elevatedName, Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return exit.Refuse(runElevated()) },
	}
}

// runElevated starts the tracer part as the launcher asks, with the launcher's standard error.
func runElevated() error {
	conn, err := connectionOf(os.Stdin)
	if err != nil {
		return fmt.Errorf("talk to allocscope run: %w (where sudo records what is typed, call "+
			"sudo allocscope run)", err)
	}
	var m tracerRequest
	files, err := receive(conn, &m, 1)
	if err == nil {
		err = m.restrict()
	}
	if err != nil {
		return fmt.Errorf("talk to allocscope run: %w", err)
	}
	_, err = startTracer(os.Stdin, files[0], m.Arguments, append(os.Environ(), m.Environment...))
	return err
}

// startTracer starts the tracer part in a session of its own, where no signal of the terminal and
// of the command's process group reaches it.
func startTracer(
	socket, output *os.File, arguments, environment []string,
) (*os.Process, error) {
	process, err := os.StartProcess(reexec.Executable, arguments, &os.ProcAttr{
		Env: environment, Files: []*os.File{socket, output, output},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return nil, fmt.Errorf("start the tracer part: %w", err)
	}
	return process, nil
}

// meaningful reports whether a variable of the user means something to the tracer part.
func meaningful(entry string) bool {
	name, _, _ := strings.Cut(entry, "=")
	return strings.HasPrefix(name, "ALLOCSCOPE_") || name == "NO_COLOR" || name == "TERM"
}

// newTracerCommand returns the tracer part. It has the flags of `allocscope run`, and the command
// as its arguments, which are for the summary alone.
func newTracerCommand(environment func(*cobra.Command) Environment) *cobra.Command {
	options := defaultOptions()
	var flags *flags
	command := &cobra.Command{
		Use: TracerName, Hidden: true, Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			conn, err := connectionOf(os.Stdin)
			if err != nil {
				return exit.Refuse(fmt.Errorf("talk to allocscope run: %w", err))
			}
			if err := flags.Read(); err != nil {
				return exit.Usage(err)
			}
			runTracer(command.Context(), conn, options, environment(command))
			return nil
		},
	}

	flags = addFlags(command, &options)
	return command
}

// orphanTime is how long the trace goes on after the end of the command, until its exit is seen.
const orphanTime = 2 * time.Second

// runTracer traces the command, and ends the process with the status of the trace. The launcher
// gets the status after the last line, because it ends then.
func runTracer(ctx context.Context, conn *net.UnixConn, options trace.Options, env Environment) {
	report := func(err error) (status exit.Status) {
		if err != nil {
			slog.Error(err.Error())
		}
		env.Flush()
		status = exit.StatusOf(err)
		_, _ = conn.Write([]byte{reportEnded, byte(status)}) // the launcher may be gone, or know it
		return status
	}

	var a traceTarget
	_, err := receive(conn, &a, 0)
	if err != nil {
		err = exit.Refuse(fmt.Errorf("talk to allocscope run: %w", err))
	} else {
		err = a.trace(ctx, conn, options, env, func(err error) { report(err) })
	}
	os.Exit(int(report(err)))
}

// trace calls ended as Ended of trace.Launch.
func (a *traceTarget) trace(
	ctx context.Context, conn *net.UnixConn, options trace.Options, env Environment,
	ended func(error),
) error {
	signal.Ignore(unix.SIGPIPE) // the launcher may be gone, with the reader of its output
	command, err := openProcess(a.PID)
	if err != nil {
		return exit.Refuse(err)
	}
	place, err := makePlace(command)
	if err != nil {
		return exit.Refuse(err)
	}
	defer place.remove(command)

	ctx, end := context.WithCancelCause(ctx)
	go func() {
		command.awaitEnd()
		time.AfterFunc(orphanTime, func() { end(record.ErrCommandEnded) })
	}()
	go func() {
		for order := range packets(conn) {
			if order[0] == orderInterrupt {
				_ = unix.Kill(os.Getpid(), unix.SIGINT) // as Ctrl-C of trace
			}
		}
	}()

	options.PID = a.PID
	options.Launch = &trace.Launch{
		Shim: place.shim, UID: command.uid, Executable: a.Executable, Arguments: a.Arguments,
		Start: func() error {
			_, err := conn.Write(append([]byte{reportReady}, place.shim.Name()...))
			return err
		},
		Ended: ended,
	}

	env.Trace.CommandLine = slices.Clone(os.Args)
	if i := slices.Index(env.Trace.CommandLine, TracerName); i >= 0 {
		env.Trace.CommandLine[i] = Name
	}
	env.Trace.NewDisplay = func(*record.Recorder, *trace.Options) trace.Display { return noDisplay{} }
	return trace.Run(ctx, options, env.Trace)
}

// noDisplay is the display of a trace whose command has the terminal.
type noDisplay struct{}

// Show implements trace.Display.
func (noDisplay) Show(record.Progress) {}

// Clear implements trace.Display.
func (noDisplay) Clear() {}

var errNoMarks = errors.New("--marks -: standard input is the command's (give a file, or use " +
	"allocscope mark)")
