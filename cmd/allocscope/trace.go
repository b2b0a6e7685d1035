package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
)

// traceFlags are the flags of `allocscope trace`.
type traceFlags struct {
	pid           int
	noChildren    bool
	duration      durationValue // 0: until Ctrl-C
	warmup        durationValue // 0: to be found
	tolerable     rateValue
	failOn        failOnValue
	marks         string
	stepSymbol    string
	sources       []string
	snapshotEvery durationValue // 0: by the duration
	overhead      overheadValue // 0: without a limit
	interval      intervalValue // 0: by what is seen
	maxLive       int
	native        string
	owners        ownersValue
	output        string
	force         bool
	json          bool
	noTUI         bool
	// pace is how many times faster than a real trainer the process lives; tests alone have others than 1.
	pace float64
}

// tolerated is growth in bytes per second that the user calls harmless. check has seen that it is by time.
func (f traceFlags) tolerated() float64 {
	rate, _ := judgedAxis{unit: summary.AxisSeconds}.rate("--tolerable", f.tolerable)
	return rate
}

// sampleEvery is the time between two rows of the timeline.
func (f traceFlags) sampleEvery() time.Duration {
	return max(100*time.Millisecond, time.Duration(float64(time.Second)/f.pace))
}

func newTraceCommand() *cobra.Command {
	flags := traceFlags{overhead: defaultOverhead, pace: 1}
	command := &cobra.Command{
		Use:   "trace --pid N [--duration 5m]",
		Short: "Trace a running process and write what accumulates",
		Long: `Trace attaches to a running process, judges whether its memory leaks, and tells what code accumulates. It writes a folder
with pprof profiles: growth.pb.gz (what accumulated after the warm-up), warmup.pb.gz and plateau.pb.gz (what was alive
then), snapshots/, timeline.csv, processes.csv and summary.json. The process is neither stopped nor changed.

Where PID is a launcher (uv run, bash -c, torchrun, accelerate) the trainer below it is traced. Without --duration the
process is judged again and again, and the alarm is raised when three looks in a row find a leak.

On a terminal a screen shows how the trace goes, with its keys in the last line; elsewhere lines are printed now and then.

Ctrl-C ends the trace and writes the files; a second Ctrl-C leaves at once.`,
		Example: `  sudo allocscope trace --pid 4242 --duration 5m
  go tool pprof -top allocscope-4242-*/growth.pb.gz
  python3 train.py 2>&1 | sudo allocscope trace --pid 4242 --marks -`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error { return runTrace(command, flags) },
	}
	flags.addTarget(command)
	flags.addSources(command)
	flags.addOutput(command)
	if err := command.MarkFlagRequired("pid"); err != nil {
		panic(err) // the flag is defined above
	}
	return command
}

// addTarget defines the flags that say what is judged, and by what.
func (f *traceFlags) addTarget(command *cobra.Command) {
	set := command.Flags()
	set.IntVarP(&f.pid, "pid", "p", 0, "process to trace")
	set.BoolVar(&f.noChildren, "no-children", false, "trace this process alone, whatever it has launched")
	set.VarP(&f.duration, "duration", "d", "how long to trace: 300, 5m (default until Ctrl-C)")
	set.Var(&f.warmup, "warmup", "when the warm-up ends; growth is counted from then (default where it is seen to end)")
	set.Var(&f.tolerable, "tolerable", "growth that is harmless: 10MiB/min")
	set.Var(&f.failOn, "fail-on", "exit with 3 on a verdict, on RSS or on device memory, of: leak, or suspected (a leak or what may be one)")
	set.StringVar(&f.marks, "marks", "", "file that is followed, or - for stdin: lines \"allocscope: TEXT\" become marks")
	set.StringVar(&f.stepSymbol, "step-symbol", "", "function that runs once a step, as LIB:SYMBOL (default PyTorch's backward pass)")
}

// addSources defines the flags that say what is taken down of it.
func (f *traceFlags) addSources(command *cobra.Command) {
	set := command.Flags()
	set.StringSliceVar(&f.sources, "sources", source.Names(), "what to attach; without heap, holders of heap memory are not known")
	set.Var(&f.snapshotEvery, "snapshot-every", "time between snapshots (default a sixtieth of the duration; under two minutes a thirtieth, at least 1s)")
	set.Var(&f.overhead, "overhead", "share of the traced CPU time that tracing may take: 3%, 0.5%, off (every call is probed)")
	set.Var(&f.interval, "interval", "mean bytes between samples: auto (by what is seen), 1 (every allocation), 64KiB, 2MiB")
	set.IntVar(&f.maxLive, "max-live", kernel.DefaultMaxLive, "most sampled allocations to follow at a time")
	set.StringVar(&f.native, "native", nativeOutside, "native frames to keep besides Python's: outside (the interpreter) or all")
	set.Var(&f.owners, "owners", "file of rules that tell whose memory a stack holds; they go before the built-in ones")
}

// addOutput defines the flags that say what comes of it, and where.
func (f *traceFlags) addOutput(command *cobra.Command) {
	set := command.Flags()
	set.StringVarP(&f.output, "output", "o", "", "folder to write (default allocscope-PID-TIME here)")
	set.BoolVarP(&f.force, "force", "f", false, "replace the files of an earlier trace in the folder")
	set.BoolVar(&f.json, "json", false, "print the summary as JSON instead of a table")
	set.BoolVar(&f.noTUI, "no-tui", false, "print plain lines on a terminal, too, instead of a screen that is drawn anew")
}

// defaultOverhead in percent.
const defaultOverhead = 3

// Values of --native.
const (
	nativeOutside = "outside"
	nativeAll     = "all"
)

// check refuses combinations that make no sense.
func (f traceFlags) check() error {
	if _, err := (judgedAxis{unit: summary.AxisSeconds}).rate("--tolerable", f.tolerable); err != nil {
		return err
	}
	if _, err := probe.ParseStepFunction(f.stepSymbol); err != nil {
		return fmt.Errorf("--step-symbol: %w", err)
	}
	for _, name := range f.sources {
		if !slices.Contains(source.Names(), name) {
			return fmt.Errorf("--sources: there is no source %q (there are %s)", name, strings.Join(source.Names(), ", "))
		}
	}
	switch {
	case len(f.sources) == 0:
		return fmt.Errorf("--sources names none (there are %s)", strings.Join(source.Names(), ", "))
	case f.duration != 0 && f.warmup >= f.duration:
		return fmt.Errorf("--warmup %s is not before the end of the trace at %s", &f.warmup, &f.duration)
	case f.maxLive < 1 || f.maxLive > 1<<30:
		return fmt.Errorf("--max-live %d is not between 1 and %d", f.maxLive, 1<<30)
	case f.native != nativeOutside && f.native != nativeAll:
		return fmt.Errorf("--native %q is neither %s nor %s", f.native, nativeOutside, nativeAll)
	case f.snapshotEvery != 0 && time.Duration(f.snapshotEvery) < 100*time.Millisecond:
		return fmt.Errorf("--snapshot-every %s is less than 100ms", time.Duration(f.snapshotEvery))
	}
	return nil
}

func (f traceFlags) options() tracer.Options {
	return tracer.Options{
		PID: f.pid, Children: !f.noChildren, StepSymbol: f.stepSymbol, Sources: f.sources,
		Interval: uint64(f.interval), Overhead: f.overhead.share(), Duration: time.Duration(f.duration), MaxLive: f.maxLive, NativeFrames: f.native == nativeAll,
	}
}

func runTrace(command *cobra.Command, flags traceFlags) (err error) {
	if err := flags.check(); err != nil {
		return err
	}
	defer sparing()()
	session, err := tracer.Open(command.Context(), flags.options())
	if errors.Is(err, context.Canceled) {
		slog.Warn("interrupted before tracing started: nothing is written")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, session.Close()) }()
	logSources(session)
	flags.logBudget()
	folder, err := createFolder(flags)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	marks, err := startMarks(flags)
	if err != nil {
		return err
	}
	defer marks.close()
	r, err := newRecorder(session, marks, folder, flags)
	if err != nil {
		return err
	}
	r.display = newDisplay(command, r)
	defer r.display.clear()
	ended, err := r.record(command.Context())
	outcomes, finishErr := r.finish(command.OutOrStdout(), ended)
	if err := errors.Join(err, finishErr); err != nil {
		return err
	}
	return flags.failOn.check(outcomes...)
}

// startMarks takes marks from `allocscope mark`, where no other trace does, and from the file that the user has named.
func startMarks(flags traceFlags) (*marker, error) {
	owner, err := folder.OwnerFromEnvironment(os.Getenv)
	if err != nil {
		return nil, err
	}
	m := newMarker()
	if err := m.listen(flags.pid, uint32(owner.UID)); err != nil {
		slog.Warn(err.Error())
	}
	if flags.marks == "" {
		return m, nil
	}
	if err := m.follow(flags.marks); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

// createFolder makes the output folder, which belongs to the user behind sudo.
func createFolder(flags traceFlags) (*folder.Folder, error) {
	owner, err := folder.OwnerFromEnvironment(os.Getenv)
	if err != nil {
		return nil, err
	}
	path := flags.output
	if path == "" {
		path = fmt.Sprintf("allocscope-%d-%s", flags.pid, time.Now().Format("20060102-150405"))
	}
	return folder.Create(path, owner, flags.force)
}

// endOf gives the reason why a trace ends, for the summary.
func endOf(ctx context.Context, session *tracer.Session) string {
	switch {
	case session.Err() != nil:
		return summary.EndedExit
	case ctx.Err() != nil:
		return summary.EndedInterrupt
	}
	return summary.EndedDuration
}

// sparing keeps the heap small while a trace starts, when most memory is used and given back: beside a trainer that is dearer than a
// little of our time. It ends by itself or by the function that it gives.
func sparing() (end func()) {
	const startup = 15 * time.Second
	before := debug.SetGCPercent(50)
	restore := func() { debug.SetGCPercent(before) }
	timer := time.AfterFunc(startup, restore)
	return func() {
		if timer.Stop() {
			restore()
		}
	}
}
