// Package run is the command `allocscope run`: it starts a command, traces all that it starts from
// the first allocation on, and prints the result of the trace.
//
// It is three processes. The launcher is the program that the user has called. It starts the
// command as its child in its process group, and ends as the command does. The witness shows which
// signals the group has received. The tracer part, which needs privileges, is in a session of its
// own; it gets them by sudo where the user has none.
package run

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/trace"
)

// Name is the command's name.
const Name = "run"

// Environment has the means that a run gets from the program.
type Environment struct {
	Trace trace.Environment
	// Flush waits until all log entries have been written.
	Flush func()
}

// flags are the flags of the launcher and of the tracer part.
type flags struct {
	*trace.Flags
	options       *trace.Options
	pythonObjects bool
}

// NewCommands returns the command, and the hidden ones that it calls.
func NewCommands(environment func(*cobra.Command) Environment) []*cobra.Command {
	return []*cobra.Command{
		newCommand(environment), newElevatedCommand(), newTracerCommand(environment),
	}
}

func newCommand(environment func(*cobra.Command) Environment) *cobra.Command {
	options := defaultOptions()
	var flags *flags
	command := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command and find its leaks, from its first allocation on",
		Long: `Run starts a command and traces all that it starts, as trace does, from the first
allocation on. A small library that is preloaded into each program (LD_PRELOAD) samples the
heap: a malloc that is not sampled costs a few nanoseconds, so that no bursts are needed, and
small leaks are found sooner.

It is called without sudo. The command runs as you, with your environment, terminal and
signals, and its exit status is that of run. The part that traces needs root: run calls
sudo for it, unless it is root.

The trace ends with the command, or after --duration; the command goes on then, and who keeps
the memory can still be searched in it. Ctrl-C is the command's. The result is printed on
standard error: standard output is the command's.`,
		Example: `  allocscope run -- python train.py
  allocscope run --python-objects --output out -- python train.py --epochs 3
  allocscope run -d 10m -- torchrun --nproc-per-node 4 train.py`,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: cli.Files,
		RunE: func(command *cobra.Command, arguments []string) error {
			if len(arguments) == 0 {
				return exit.Usage(errors.New("name the command: allocscope run -- COMMAND"))
			}
			if err := flags.Read(); err != nil {
				return exit.Usage(err)
			}
			l := &launcher{command: arguments, flags: flags, env: environment(command)}
			return l.run()
		},
		Annotations: map[string]string{
			cli.Environment: environmentHelp,
			cli.ExitStatus: `  The status of the command, whose signal ends run, too. But:
  2    refused before the start: wrong usage, no privilege, no folder
  1, 3, 4  with --fail-on as trace, where the command has ended with 0
  126  the command cannot be executed
  127  the command was not found`,
		},
	}

	flags = addFlags(command, &options)
	return command
}

const environmentHelp = `  Every flag can be set by a variable, as for trace: ALLOCSCOPE_OVERHEAD=1%.
  NO_COLOR turns colours off, unless --color always is given.`

// defaultOptions are the options of trace. All that the command starts is traced.
func defaultOptions() trace.Options { return trace.DefaultOptions() }

// addFlags defines the flags. Flags after the command's name are the command's.
func addFlags(command *cobra.Command, options *trace.Options) *flags {
	set := command.Flags()
	set.SetInterspersed(false)
	f := &flags{Flags: trace.AddFlags(command, options), options: options}
	set.BoolVar(&f.pythonObjects, "python-objects", false,
		"let Python allocate each object by malloc (PYTHONMALLOC=malloc): small objects have call "+
			"sites, too, and Python is slower")
	cli.Group(set, "Cost", "python-objects")
	set.Lookup("duration").Usage = "how long to trace: 300, 5m (default until the command ends)"
	return f
}

// Read sets the options, and refuses values that make no sense.
func (f *flags) Read() error {
	if err := f.Flags.Read(); err != nil {
		return err
	}
	if f.options.Marks == "-" {
		return errNoMarks
	}
	return f.options.Check()
}
