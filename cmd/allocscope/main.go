// Command allocscope finds what grows in a running process. It attaches eBPF probes to the
// allocator and to the system calls that map memory, and writes pprof profiles of accumulating
// memory.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/mark"
	"github.com/allocscope/allocscope/cmd/allocscope/run"
	"github.com/allocscope/allocscope/cmd/allocscope/screen"
	"github.com/allocscope/allocscope/cmd/allocscope/target"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
	"github.com/allocscope/allocscope/record"
)

func main() {
	os.Exit(start())
}

// start starts the command that the arguments name. It returns the exit status.
func start() int {
	// The first signal ends the trace in order. The second one finds the default handler and ends
	// allocscope.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)
	context.AfterFunc(ctx, stop)
	defer stop()

	stderr := console.New(os.Stderr)
	defer stderr.Flush()

	return int(execute(ctx, newRootCommand(stderr)))
}

// execute executes a command, and logs its error. It returns the exit status.
func execute(ctx context.Context, root *cobra.Command) exit.Status {
	command, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exit.Done
	}

	// A failure before the command itself begins is wrong usage.
	if !hasBegun(command) {
		err = exit.Usage(err)
	}

	slog.Error(err.Error())
	if exit.IsUsage(err) {
		fmt.Fprintf(root.ErrOrStderr(), "try '%s --help'\n", command.CommandPath())
	}

	if verifier, ok := errors.AsType[*ebpf.VerifierError](err); ok {
		slog.Debug(fmt.Sprintf("%+v", verifier))
	}
	return exit.StatusOf(err)
}

// begun is the annotation of a command whose flags and arguments are right.
const begun = "begun"

func hasBegun(command *cobra.Command) bool { return command.Annotations[begun] != "" }

// rootFlags are the flags of all commands.
type rootFlags struct {
	debug, quiet bool
	color        console.Color
}

func newRootCommand(stderr *console.Console) *cobra.Command {
	var flags rootFlags
	root := &cobra.Command{
		Use:     "allocscope",
		Short:   "Find memory leaks in a running process",
		Version: newVersion().Version,
		Long: `allocscope attaches to a running process without restarting it, and reports whether its
memory leaks, how fast, and which code accumulates it.`,
		Example: `  allocscope ps
  sudo allocscope trace 4242 --duration 5m
  allocscope view
  sudo allocscope demo`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(command *cobra.Command, arguments []string) error {
			unknown, err := readEnvironment(command, arguments)
			if err == nil {
				err = flags.check()
			}
			if err != nil {
				return err
			}

			level := flags.level()
			if command.Name() == run.TracerName && !flags.debug { // the command has the terminal
				level = slog.LevelWarn
			}
			slog.SetDefault(stderr.Logger(level, flags.color))
			for _, name := range unknown {
				slog.Warn(fmt.Sprintf("there is no flag for the environment variable %s", name))
			}

			if command.Annotations == nil {
				command.Annotations = make(map[string]string)
			}
			command.Annotations[begun] = "yes"
			return nil
		},
	}

	slog.SetDefault(stderr.Logger(slog.LevelInfo, "")) // for errors in the flags themselves

	set := root.PersistentFlags()
	set.BoolVar(&flags.debug, "debug", false,
		"log which functions are probed and why, and the verifier's log")
	set.BoolVarP(&flags.quiet, cli.QuietFlag, "q", false,
		"log warnings and errors alone; trace prints the verdict alone")
	set.Var(&flags.color, cli.ColorFlag,
		"colours: auto (on a terminal), always, never; sudo drops NO_COLOR")
	root.SetErr(stderr)
	root.SetVersionTemplate(newVersion().String() + "\n")
	cli.Install(root)
	cli.CompleteValues(root, cli.ColorFlag, string(console.ColorAuto), string(console.ColorAlways),
		string(console.ColorNever))
	// A value that is not a file or a folder by its flag or argument does not complete to one.
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)

	root.AddCommand(newTraceCommand(stderr))
	root.AddCommand(newRunCommands(stderr)...)
	root.AddCommand(target.NewCommand(), newShowCommand(), newViewCommand(),
		newReportCommand(), newBundleCommand(), newDiffCommand(), newRanksCommand(), newVerdictCommand(), newObjectsCommand(),
		mark.NewCommand(),
		newAgentCommand(), newDoctorCommand(), newDemoCommand(stderr), newVersionCommand())
	for _, newCommand := range extraCommands {
		root.AddCommand(newCommand())
	}
	return root
}

// extraCommands are the commands of a build tag.
var extraCommands []func() *cobra.Command

// check refuses combinations that make no sense.
func (f rootFlags) check() error {
	if f.debug && f.quiet {
		return errors.New("--quiet and --debug: give one of them")
	}
	return nil
}

// level is the level of the log.
func (f rootFlags) level() slog.Level {
	switch {
	case f.debug:
		return slog.LevelDebug
	case f.quiet:
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// readEnvironment sets flags from the environment: all of trace and of agent, and of other commands
// those that trace has as well. A process that the command line chooses is chosen.
func readEnvironment(command *cobra.Command, arguments []string) (unknown []string, err error) {
	set := command.Flags()
	var chosen []string
	switch strings.TrimPrefix(command.CommandPath(), command.Root().Name()+" ") {
	case run.Name, run.TracerName:
	case traceName:
		if len(arguments) > 0 || set.Changed("pid") || set.Changed("name") {
			chosen = []string{"pid", "name"}
		}
	case agentName:
	default:
		_, err := cli.FromEnvironment(command.InheritedFlags(), os.Environ())
		return nil, err
	}
	return cli.FromEnvironment(set, os.Environ(), chosen...)
}

const (
	traceName = "trace"
	agentName = "agent"
)

// newTraceCommand returns the trace command with its screen on the terminal.
func newTraceCommand(stderr *console.Console) *cobra.Command {
	return trace.NewCommand(func(command *cobra.Command) trace.Environment {
		return traceEnvironment(command.Context(), stderr, command.OutOrStdout())
	})
}

// newRunCommands returns the run command, and the hidden ones that it calls.
func newRunCommands(stderr *console.Console) []*cobra.Command {
	return run.NewCommands(func(command *cobra.Command) run.Environment {
		return run.Environment{
			Trace: traceEnvironment(command.Context(), stderr, command.OutOrStdout()),
			Flush: stderr.Flush,
		}
	})
}

// traceEnvironment has the means that a trace gets from the command: where it writes, and who shows
// it.
func traceEnvironment(
	ctx context.Context,
	stderr *console.Console,
	out io.Writer,
) trace.Environment {
	return trace.Environment{
		Version:     newVersion().Version,
		CommandLine: os.Args,
		Out:         out,
		WriteReport: writeReport,
		NewDisplay: func(r *record.Recorder, options *trace.Options) trace.Display {
			return screen.NewDisplay(ctx, r, options, stderr, out)
		},
	}
}
