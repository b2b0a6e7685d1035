// Package demo is the command `allocscope demo`: it starts a trainer that leaks, traces it, and ends
// it.
package demo

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/cmd/allocscope/user"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/tracer/kernel"
)

//go:embed trainer.py
var trainer []byte

// Files of the demo's folder.
const (
	scriptName = "trainer.py"
	traceName  = "trace"
)

const (
	defaultDuration = 60 * time.Second
	maxDuration     = 10 * time.Minute // the trainer leaks 3 MiB a second

	// startTimeout is how long Python may take to start.
	startTimeout = 30 * time.Second
)

// NewCommand returns the command.
func NewCommand(environment func(*cobra.Command) trace.Environment) *cobra.Command {
	options := trace.DefaultOptions()
	options.Duration = flagvalue.Duration(defaultDuration)
	command := &cobra.Command{
		Use:   "demo",
		Short: "Trace a small trainer that leaks, and show what a result looks like",
		Long: `Demo starts a small Python trainer that leaks 3 MiB a second, traces it for a minute, ends
it, and prints the result. It needs python3, and root as trace does; the trainer runs as
the user who called sudo.

It makes a folder allocscope-demo-TIME with the trainer's script and the trace, and makes
allocscope-latest lead to the trace.`,
		Example: `  sudo allocscope demo
  allocscope view`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if time.Duration(options.Duration) > maxDuration {
				return exit.Usage(fmt.Errorf("--duration %s is longer than %s", &options.Duration,
					maxDuration))
			}
			options.Quiet, options.Color = trace.OutputFlags(command.Flags())
			return run(command.Context(), options, environment(command))
		},
	}

	set := command.Flags()
	set.VarP(&options.Duration, "duration", "d", "how long to trace, at most 10m")
	set.BoolVarP(&options.Details, "verbose", "v", false, "print the numbers behind the result, too")
	set.BoolVar(&options.NoTUI, "no-tui", false,
		"print plain lines, on a terminal too, instead of a screen")
	return command
}

func run(ctx context.Context, options trace.Options, env trace.Environment) (err error) {
	owner, err := folder.OwnerFromEnvironment(os.Getenv)
	if err != nil {
		return exit.Refuse(err)
	}
	if err := checkPrivileges(); err != nil {
		return exit.Refuse(err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		return exit.Refuse(errors.New("the demo's trainer needs python3, and there is none in " +
			"PATH (apt install python3, dnf install python3, apk add python3)"))
	}

	path, dir, err := makeFolder(owner)
	if err != nil {
		return exit.Refuse(err)
	}
	defer dir.Close()

	// The kernel ends the trainer when the thread that has started it ends: the whole demo runs on
	// it, so that the trainer ends however allocscope does.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	started, err := start(ctx, owner, python, dir)
	if err != nil {
		return exit.Refuse(err)
	}
	defer started.end()

	options.PID = started.command.Process.Pid
	options.Output = filepath.Join(path, traceName)
	options.LinksLatest, options.EndsTarget = true, true
	slog.Info(fmt.Sprintf("PID %d runs %s and leaks 3 MiB a second", options.PID,
		filepath.Join(path, scriptName)))
	return trace.Run(ctx, options, env)
}

// checkPrivileges refuses a demo that could not trace, before it starts anything.
func checkPrivileges() error {
	missing, err := kernel.MissingPrivileges()
	if err != nil {
		return err
	}
	for _, p := range missing {
		if p.Without == "" { // nothing can be traced without it
			return fmt.Errorf("trace the demo's trainer: without %s: permission denied "+
				"(sudo allocscope demo)", p.Name)
		}
	}
	return nil
}

// makeFolder makes the folder of the demo in the working directory, and writes the script into it.
// Both belong to the owner. The open folder is the one that was made, whatever its path leads to: a
// file that others put there is not executed.
func makeFolder(owner folder.Owner) (path string, dir *os.File, err error) {
	path = "allocscope-demo-" + time.Now().Format("20060102-150405")
	if dir, err = folder.MakeDirectory(path, owner); err != nil {
		return "", nil, err
	}

	script := filepath.Join(pathOf(dir), scriptName)
	err = folder.WriteFile(script, owner, func(w io.Writer) error {
		_, err := w.Write(trainer)
		return err
	})
	if err != nil {
		_ = dir.Close()
	}
	return path, dir, err
}

// pathOf is a path that leads to an open folder, in this process and in a child of it before its
// execve(2).
func pathOf(dir *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", dir.Fd()) }

// A process is the running trainer.
type process struct {
	command *exec.Cmd
	stderr  bytes.Buffer
}

// start starts the trainer in its folder, as the owner, and waits until it trains. -I keeps Python
// from code that the user's environment and the working directory bring along.
func start(
	ctx context.Context, owner folder.Owner, python string, dir *os.File,
) (*process, error) {
	p := &process{command: user.Command(ctx, owner, python, "-I", scriptName)}
	p.command.Dir, p.command.Stderr = pathOf(dir), &p.stderr
	if p.command.SysProcAttr == nil {
		p.command.SysProcAttr = &syscall.SysProcAttr{}
	}
	p.command.SysProcAttr.Setpgid = true // Ctrl-C ends the trace first
	p.command.SysProcAttr.Pdeathsig = syscall.SIGKILL
	p.command.Cancel = func() error { return nil } // end ends it, after the trace

	stdout, err := p.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.command.Start(); err != nil {
		return nil, fmt.Errorf("start the demo's trainer: %w", err)
	}

	timeout := time.AfterFunc(startTimeout, func() { _ = p.command.Process.Kill() })
	defer timeout.Stop()
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		p.end()
		return nil, fmt.Errorf("start the demo's trainer: %s ended: %s", python,
			strings.TrimSpace(lastLine(p.stderr.String())))
	}
	return p, nil
}

// end ends the trainer.
func (p *process) end() {
	_ = p.command.Process.Kill()
	_ = p.command.Wait() // its end is the one that was asked for
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}
