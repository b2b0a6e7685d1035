// Package trace is the command `allocscope trace`: it samples and takes snapshots of a process,
// judges them, and writes the folder of the trace and its result.
package trace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/cmd/allocscope/cli"
	"github.com/allocscope/allocscope/cmd/allocscope/console"
	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/cmd/allocscope/pushflags"
	"github.com/allocscope/allocscope/cmd/allocscope/target"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/push"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/record"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
)

// Environment has the means that a trace gets from the program that runs it.
type Environment struct {
	Version     string
	CommandLine []string  // of allocscope
	Out         io.Writer // of the result
	WriteReport func(*folder.Folder) func(io.Writer) error
	NewDisplay  func(*record.Recorder, *Options) Display
}

// Display shows the progress of a trace.
type Display interface {
	// Show shows the progress after each sample.
	Show(record.Progress)
	// Clear removes the display, before the result is printed. It may be called again.
	Clear()
}

// Options are the flags of `allocscope trace`.
type Options struct {
	PID           int
	NoChildren    bool
	Limit         flagvalue.Size     // of memory, that allocscope cannot see; none: none
	Duration      flagvalue.Duration // 0: until Ctrl-C
	UntilSettled  flagvalue.Duration // the longest trace; 0: it ends after Duration
	Continue      string             // folder of an earlier trace of the process; empty: none
	Warmup        flagvalue.Duration // 0: detected
	Tolerable     flagvalue.Rate
	FailOn        flagvalue.FailOn
	Marks         string // path, "-" for standard input; empty: none
	StepSymbol    string // LIB:SYMBOL; empty: PyTorch's
	Sources       []string
	SnapshotEvery flagvalue.Duration // 0: by the duration
	Overhead      flagvalue.Overhead // 0: no limit
	OwnFloor      float64            // as tracer.Options.OwnFloor
	Interval      flagvalue.Interval // 0: the finest that the budget pays for
	MaxLive       int
	Native        string
	Keepers       string // KeepersOn: objects are counted, and searched for who keeps them
	Components    flagvalue.Components
	Output        string // empty: allocscope-PID-TIME
	LinksLatest   bool   // allocscope-latest leads to Output, as it does to the default folder
	Force         bool
	JSON          bool
	Details       bool // print the numbers behind the result, too
	NoTUI         bool
	Quiet         bool // prints the verdict alone, and logs warnings and errors
	Color         console.Color
	Push          *push.Options // nil: profiles are not pushed

	// Launch is of a command that is started by the trace; nil: PID is running.
	Launch *Launch
	// EndsTarget: who runs the trace ends the process after it.
	EndsTarget bool
	// Speed is how many times faster than a real trainer the process lives. It is 1 but in tests.
	Speed float64
}

// A Launch is how a trace starts its command.
type Launch struct {
	// Shim is the open file of the shim in the command's LD_PRELOAD, which no process has mapped yet.
	Shim *os.File
	// UID is the command's user.
	UID int
	// Executable is the path of the command's program, and Arguments its arguments.
	Executable string
	Arguments  []string
	// Start lets the process of Options.PID execute the command. It is called once, when all that
	// can fail before has succeeded.
	Start func() error
	// Ended is called with the error of the trace once the command and all that was traced has
	// ended, and the result is written. The kernel then takes half a second to detach the probes,
	// for which nobody need wait. Run returns the errors of that alone.
	Ended func(error)
}

// defaultOverheadPercent is the default limit of the overhead. With it allocscope itself may use
// duty.DefaultCores, however little the traced processes use. A limit of the user is kept to the
// letter.
const defaultOverheadPercent = 3

// Values of --native and of --keepers.
const (
	NativeOutside = "outside"
	NativeAll     = "all"
	KeepersOn     = "on"
	KeepersOff    = "off"
)

const (
	// defaultUntilSettled is the longest trace of --until-settled, and defaultDuration its first
	// length where no other is given.
	defaultUntilSettled = "1h"
	defaultDuration     = 5 * time.Minute
)

// NewCommand returns the command.
func NewCommand(environment func(*cobra.Command) Environment) *cobra.Command {
	options, choice := DefaultOptions(), target.Choice{}
	var flags *Flags
	command := &cobra.Command{
		Use:   "trace PID [--duration 5m]",
		Short: "Trace a running process and find its leaks",
		Long: `Trace attaches to a running process, judges whether its memory leaks, and names the code
that accumulates it. It writes a folder with pprof profiles: growth.pb.gz (what
accumulated after the warm-up), warmup.pb.gz and plateau.pb.gz (what was alive then),
snapshots/, timeline.csv, processes.csv and summary.json. The process is neither stopped
nor changed.

Where PID is a launcher (uv run, bash -c, torchrun, accelerate), the trainer below it is traced.
Without --duration the process is judged periodically, and the alarm is raised when three checks
in a row find a leak.

A terminal shows a screen, with its keys in the last line. Elsewhere a status line is printed
every 10 s.

Ctrl-C ends the trace, writes the files and prints the result. Ctrl-C again ends the search for
keepers, which takes 10 s at most then, and a third time leaves without the files.`,
		Example: `  allocscope ps
  sudo allocscope trace 4242 --duration 5m
  sudo allocscope trace --name train.py --fail-on leak -d 15m
  sudo allocscope trace 4242 --marks train.log
  sudo ALLOCSCOPE_OVERHEAD=1% allocscope trace 4242`,
		Args: cobra.ArbitraryArgs,
		RunE: func(command *cobra.Command, arguments []string) error {
			if err := flags.Read(); err != nil {
				return exit.Usage(err)
			}
			var err error
			if options.PID, err = choice.Resolve(arguments, "allocscope trace", true); err != nil {
				return err
			}
			return Run(command.Context(), options, environment(command))
		},
		Annotations: map[string]string{
			cli.Environment: environmentHelp,
			cli.ExitStatus: exit.Help(exit.Done, exit.Failed, exit.Refused, exit.Found,
				exit.Inconclusive),
		},
	}

	choice.AddPID(command, "process to trace, as the argument PID")
	choice.AddName(command.Flags())
	options.addTargetFlags(command)
	flags = AddFlags(command, &options)
	set := command.Flags()
	set.BoolVar(&options.NoTUI, "no-tui", false,
		"print plain lines, on a terminal too, instead of a screen")
	cli.Group(set, "Output", "no-tui")

	return command
}

// Flags are those that commands have in common that trace.
type Flags struct {
	options *Options
	command *cobra.Command
	pushes  *pushflags.Flags
}

// AddFlags defines the flags of a command that traces, but for those that choose what.
func AddFlags(command *cobra.Command, options *Options) *Flags {
	options.addLengthFlags(command)
	options.addVerdictFlags(command)
	options.addOutputFlags(command)
	options.addSourceFlags(command)
	groupFlags(command)
	pushes := pushflags.Add(command, pushflags.UserSpool)
	addCompletions(command)
	return &Flags{options, command, pushes}
}

// Read sets the options by the flags, once these are parsed, and refuses those that make no sense.
func (f *Flags) Read() (err error) {
	o, set := f.options, f.command.Flags()
	if o.Push, err = f.pushes.Options(); err != nil {
		return err
	}
	if o.Push != nil && o.Push.Spool == "" {
		if o.Push.Spool, err = pushflags.DefaultSpool(); err != nil {
			return err
		}
	}

	if set.Changed("overhead") {
		o.OwnFloor = 0
	}
	o.Quiet, o.Color = OutputFlags(set)
	if o.Quiet && o.Details {
		return errors.New("--quiet and --details: give one of them")
	}
	return nil
}

// DefaultOptions are the options of a trace without any flag.
func DefaultOptions() Options {
	return Options{
		Overhead: defaultOverheadPercent, OwnFloor: duty.DefaultCores, Speed: 1,
		Sources: source.Names(), MaxLive: kernel.DefaultMaxLive, Native: NativeOutside,
		Keepers: KeepersOn,
	}
}

const environmentHelp = `  Every flag can be set by a variable: ALLOCSCOPE_OVERHEAD=1% for --overhead 1%,
  ALLOCSCOPE_FAIL_ON=leak for --fail-on leak. A flag wins over its variable. sudo drops
  variables: sudo ALLOCSCOPE_OVERHEAD=1% allocscope trace PID, or sudo -E.
  NO_COLOR turns colours off, unless --color always is given.`

// groupFlags arranges the help: common flags first, flags for experts last.
func groupFlags(command *cobra.Command) {
	set := command.Flags()
	cli.Group(set, "Length", "duration", "until-settled")
	cli.Group(set, "Verdict", "warmup", "tolerable", "limit", "fail-on", "marks")
	cli.Group(set, "Cost", "overhead", "keepers")
	cli.Group(set, "Output", "output", "force", "details", "verbose", "json")
	cli.Group(set, "Sources and cost, for experts", "sources", "interval", "snapshot-every",
		"max-live", "native", "step-symbol", "components")
}

// addCompletions completes the flags with fixed values, and those that name files or folders.
func addCompletions(command *cobra.Command) {
	flagvalue.CompleteFailOn(command)
	cli.CompleteValues(command, "keepers", KeepersOn, KeepersOff)
	cli.CompleteValues(command, "native", NativeOutside, NativeAll)
	cli.CompleteFlag(command, "sources", completeSources)
	cli.CompleteFolders(command, "output")
	cli.CompleteFiles(command, "components", "marks")
}

// completeSources completes the last name of a list with commas.
func completeSources(
	_ *cobra.Command, _ []string, list string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	before := list[:strings.LastIndex(list, ",")+1]
	named := strings.Split(before, ",")

	var completions []cobra.Completion
	for _, name := range source.Names() {
		if !slices.Contains(named, name) {
			completions = append(completions, before+name)
		}
	}
	return completions, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// addTargetFlags defines the flags that choose the processes.
func (o *Options) addTargetFlags(command *cobra.Command) {
	set := command.Flags()
	set.BoolVar(&o.NoChildren, "no-children", false,
		"trace this process alone, not what it launches")
	set.StringVar(&o.Continue, "continue", "",
		"folder of an earlier trace of the same process: the verdict is on both, and --duration is "+
			"that of the new trace")
	cli.Group(set, "Target", "pid", "name", "no-children", "continue")
	cli.CompleteFolders(command, "continue")
}

// addLengthFlags defines the flags that choose how long is traced.
func (o *Options) addLengthFlags(command *cobra.Command) {
	set := command.Flags()
	set.VarP(&o.Duration, "duration", "d", "how long to trace: 300, 5m (default until Ctrl-C)")
	set.Var(&o.UntilSettled, "until-settled", "trace on after --duration (default 5m) until the "+
		"verdict is settled, this long at most: --until-settled=2h; without =MAX 1h. A leak of a "+
		"process that is younger than an hour takes more than an hour")
	set.Lookup("until-settled").NoOptDefVal = defaultUntilSettled
}

// addVerdictFlags defines the flags of the judgement.
func (o *Options) addVerdictFlags(command *cobra.Command) {
	set := command.Flags()
	set.Var(&o.Warmup, "warmup",
		"measure growth from this time on: 2m (default the detected end of the warm-up)")
	set.Var(&o.Tolerable, "tolerable", "growth that is harmless: 10MiB/min")
	set.Var(&o.Limit, "limit",
		"memory limit of the job that allocscope cannot see, for the forecast: 32GiB, 32GB "+
			"(KB is 1000 bytes, KiB 1024)")
	set.Var(&o.FailOn, "fail-on", "exit with status 3 if RSS or GPU memory leaks, and 4 where the "+
		"trace cannot tell: leak (confirmed) or suspected (also suspected)")
	set.StringVar(&o.Marks, "marks", "",
		"log of the job to follow, or - for stdin: lines \"allocscope: TEXT\" become marks")
}

// addSourceFlags defines the flags that choose the sources.
func (o *Options) addSourceFlags(command *cobra.Command) {
	set := command.Flags()
	set.StringSliceVar(&o.Sources, "sources", source.Names(),
		"sources to attach; without heap, allocation sites of heap memory are unknown")
	set.Var(
		&o.Interval,
		"interval",
		"mean bytes between samples: auto (the finest that the budget pays for), "+
			"1 (every allocation), 64KiB, 2MiB",
	)
	set.Var(
		&o.SnapshotEvery,
		"snapshot-every",
		"time between snapshots (default a sixtieth of the "+
			"duration; under two minutes a thirtieth, at least 1s; up to five times as long "+
			"where snapshots cost too much)",
	)
	set.IntVar(&o.MaxLive, "max-live", kernel.DefaultMaxLive, "maximum live sampled allocations")
	set.StringVar(&o.Native, "native", NativeOutside,
		"native frames to keep besides Python's: outside (the interpreter) or all")
	set.Var(&o.Components, "components",
		"file of rules that assign stacks to components; they precede the built-in ones")
	set.StringVar(&o.StepSymbol, "step-symbol", "",
		"function that runs once a step, as LIB:SYMBOL (default PyTorch's backward pass)")
}

// addOutputFlags defines the flags that choose the files to write, and where.
func (o *Options) addOutputFlags(command *cobra.Command) {
	set := command.Flags()
	set.Var(&o.Overhead, "overhead",
		"limit of the slow-down of any thread, and of allocscope's own CPU as a share of the "+
			"job's: 3%, 0.5%, off (every call is probed, one sample each 512 KiB)")
	set.StringVar(&o.Keepers, "keepers", KeepersOn,
		"count Python's objects by type, and search which variable keeps those that grow: on or "+
			"off (the names of variables and keys of dicts are read and written into the result)")
	set.StringVarP(&o.Output, "output", "o", "",
		"folder to write (default ./allocscope-PID-TIME, and allocscope-latest leads to it)")
	set.BoolVarP(&o.Force, "force", "f", false,
		"replace the files of an earlier trace in the folder")
	set.BoolVar(&o.Details, "details", false, "print the numbers behind the result, too")
	set.BoolVar(&o.JSON, "json", false, "print the summary as JSON instead of a table")
	set.BoolVarP(&o.Details, "verbose", "v", false, "the same as --details")
}

// Check refuses wrong values and combinations that make no sense.
func (o *Options) Check() error {
	timeAxis := flagvalue.Axis{Unit: summary.AxisSeconds}
	if _, err := timeAxis.Rate("--tolerable", o.Tolerable); err != nil {
		return err
	}

	if _, err := probe.ParseStepFunction(o.StepSymbol); err != nil {
		return fmt.Errorf("--step-symbol: %w", err)
	}

	known := source.Names()
	for _, name := range o.Sources {
		if !slices.Contains(known, name) {
			return fmt.Errorf("--sources: there is no source %q (there are %s)", name,
				strings.Join(known, ", "))
		}
	}

	switch {
	case len(o.Sources) == 0:
		return fmt.Errorf("--sources names none (there are %s)", strings.Join(known, ", "))
	case o.Continue == "" && o.Duration != 0 && o.Warmup >= o.longest():
		longest := o.longest()
		return fmt.Errorf("--warmup %s is not before the end of the trace at %s", &o.Warmup, &longest)
	case o.UntilSettled != 0 && o.UntilSettled <= o.Duration:
		return fmt.Errorf("--until-settled %s is not longer than the duration of %s", &o.UntilSettled,
			&o.Duration)
	case o.MaxLive < 1 || o.MaxLive > 1<<30:
		return fmt.Errorf("--max-live %d is not between 1 and %d", o.MaxLive, 1<<30)
	case o.Keepers != KeepersOn && o.Keepers != KeepersOff:
		return fmt.Errorf("--keepers %q is neither %s nor %s", o.Keepers, KeepersOn, KeepersOff)
	case o.Native != NativeOutside && o.Native != NativeAll:
		return fmt.Errorf("--native %q is neither %s nor %s", o.Native, NativeOutside, NativeAll)
	case o.SnapshotEvery != 0 && time.Duration(o.SnapshotEvery) < 100*time.Millisecond:
		return fmt.Errorf("--snapshot-every %s is less than 100ms", time.Duration(o.SnapshotEvery))
	}

	return nil
}

// tolerableRate is the harmless growth in bytes per second. check has seen that it is by time.
func (o *Options) tolerableRate() float64 {
	rate, _ := flagvalue.Axis{Unit: summary.AxisSeconds}.Rate("--tolerable", o.Tolerable)
	return rate
}

// longest is the longest time that a trace may take; 0: until Ctrl-C.
func (o *Options) longest() flagvalue.Duration { return cmp.Or(o.UntilSettled, o.Duration) }
