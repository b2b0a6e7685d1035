package trace

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/cmd/allocscope/exit"
	"github.com/allocscope/allocscope/cmd/allocscope/flagvalue"
	"github.com/allocscope/allocscope/cmd/allocscope/mark"
	"github.com/allocscope/allocscope/export/folder"
	"github.com/allocscope/allocscope/export/summary"
	"github.com/allocscope/allocscope/export/words"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/verdict"
	"github.com/allocscope/allocscope/record"
	"github.com/allocscope/allocscope/tracer"
	"github.com/allocscope/allocscope/tracer/process"
)

func (o *Options) sessionOptions(earlier *record.Earlier) tracer.Options {
	return tracer.Options{
		PID: o.PID, Children: !o.NoChildren, StepSymbol: o.StepSymbol, Sources: o.Sources,
		Interval: uint64(o.Interval), Overhead: o.Overhead.Share(),
		OwnFloor: o.OwnFloor,
		Duration: time.Duration(o.longest()), MaxLive: o.MaxLive,
		NativeFrames: o.Native == NativeAll, Started: earlier.Started(),
		TableCache: tableCache(),
	}
}

// rootCache is the folder of root's unwind tables, and of nothing else: the tests of allocscope keep
// whole systems in /var/cache/allocscope.
const rootCache = "/var/cache/allocscope-tables"

// tableCache returns the folder that keeps unwind tables for later traces; empty: none. Others than
// root have none.
func tableCache() string {
	if os.Geteuid() == 0 {
		return rootCache
	}
	return ""
}

func (o *Options) recordOptions(env Environment) record.Options {
	return record.Options{
		PID: o.PID, Limit: int64(o.Limit.Bytes), Duration: time.Duration(o.Duration),
		UntilSettled: time.Duration(o.UntilSettled), Warmup: time.Duration(o.Warmup),
		Tolerable: o.tolerableRate(), SnapshotEvery: time.Duration(o.SnapshotEvery),
		HasBudget: o.Overhead != 0, Keepers: o.Keepers == KeepersOn, Components: o.Components.Rules,
		Launched: o.Launch != nil, EndsTarget: o.EndsTarget, Speed: o.Speed,
		Version: env.Version, CommandLine: env.CommandLine,
	}
}

// Run traces until the context ends, the process exits or the duration has passed. The error has
// its exit status where the verdict is to be a failure, or the trace was refused before its start.
func Run(ctx context.Context, options Options, env Environment) (err error) {
	if options.UntilSettled != 0 && options.Duration == 0 {
		options.Duration = flagvalue.Duration(defaultDuration)
	}
	if err := options.Check(); err != nil {
		return exit.Usage(err)
	}
	earlier, err := options.readEarlier()
	if err != nil {
		return exit.Refuse(err)
	}
	pusher, err := options.openPush()
	if err != nil {
		return err
	}
	if pusher != nil {
		defer func() { _ = pusher.Close() }()
	}
	if err := VolunteerForOOM(); err != nil {
		slog.Warn(err.Error())
	}
	userLimit := userMemoryLimit()
	limitMemory(userLimit)
	defer limitHeapAtStartup()()

	marks := mark.NewReceiver()
	defer marks.Close()
	session, dir, notes, err := options.open(ctx, earlier, marks)
	defer func() {
		if dir != nil {
			err = errors.Join(err, dir.Close())
		}
		if session == nil {
			return
		}
		if l := options.Launch; l != nil && session.Err() != nil {
			l.Ended(err)
			err = nil
		}
		err = errors.Join(err, session.Close())
	}()
	if errors.Is(err, context.Canceled) {
		slog.Warn("interrupted before tracing started: nothing is written")
		return options.FailOn.Check(flagvalue.Outcome{
			What: "the verdict", Class: verdict.ClassTooShort,
		})
	}
	if err != nil {
		return exit.Refuse(err)
	}

	log := &reporter{memoryLimit: userLimit}
	files := &record.Files{Folder: dir}
	link := sync.OnceFunc(func() { options.linkLatest(dir) }) // a killed trace is the latest one, too
	log.save = func(soFar *record.Result) {
		options.save(soFar.Summary, files)
		link()
	}
	setup := record.Setup{
		Session: session, Asked: options.describe(session.Process), Files: files,
		Marks: &marks.Marks, Earlier: earlier, Notes: notes, Report: log.report,
	}
	r, err := record.New(setup, options.recordOptions(env))
	if err != nil {
		return err
	}
	if c := earlier.Continued(r.Began()); c != nil {
		slog.Info(words.Continues(c))
	}

	log.display = env.NewDisplay(r, &options)
	defer log.display.Clear()
	ended, err := r.Record(ctx)
	log.display.Clear()

	searching, stop := untilSignal()
	ended.Search(searching)
	stop()
	result, finishErr := ended.Finish()
	if finishErr == nil {
		finishErr = options.finish(result, setup.Files, env)
	}
	if err := errors.Join(err, finishErr); err != nil {
		return err
	}
	options.linkLatest(dir)
	options.pushFolder(pusher, dir)

	return options.FailOn.Check(outcomesOf(&result.Result)...)
}

// readEarlier reads the trace that --continue names; nil where there is none. It refuses to replace
// its folder.
func (o *Options) readEarlier() (*record.Earlier, error) {
	if o.Continue == "" {
		return nil, nil
	}

	from, err := os.Stat(o.Continue)
	to, outputErr := os.Stat(o.Output)
	if o.Output != "" && err == nil && outputErr == nil && os.SameFile(from, to) {
		return nil, fmt.Errorf("continue %s: --output names the same folder (the new trace has a "+
			"folder of its own)", growth.Printable(o.Continue))
	}
	return record.ReadEarlier(o.Continue, o.PID)
}

// open opens the session and the folder, and starts the command, if there is one. The caller closes
// both, after an error too. The notes are of the start.
func (o *Options) open(
	ctx context.Context, earlier *record.Earlier, marks *mark.Receiver,
) (session *tracer.Session, dir *folder.Folder, notes []summary.Note, err error) {
	prepare := func() (err error) {
		if err = o.receive(marks); err == nil {
			dir, err = o.createFolder()
		}
		return err
	}
	sessionOptions := o.sessionOptions(earlier)
	sessionOptions.Launch = o.launchWith(prepare)

	session, err = tracer.Open(ctx, sessionOptions)
	if err != nil {
		return nil, dir, nil, err
	}
	if err := earlier.CheckProgram(session.Process); err != nil {
		return session, dir, nil, err
	}
	notes = o.logSession(session)
	o.logBudget()

	if dir == nil {
		err = prepare()
	}
	return session, dir, notes, err
}

// launchWith returns how the session starts the command, after prepare has not failed; nil: the
// process runs already.
func (o *Options) launchWith(prepare func() error) *tracer.Launch {
	if o.Launch == nil {
		return nil
	}
	return &tracer.Launch{
		Shim: o.Launch.Shim, Command: o.PID, UID: o.Launch.UID,
		Start: func(context.Context) (pid int, err error) {
			if err := prepare(); err != nil {
				return 0, err
			}
			return o.PID, o.Launch.Start()
		},
	}
}

// describe describes the process that is asked for: the command, if it has been started, since its
// process may have executed another program.
func (o *Options) describe(p *process.Process) record.Target {
	asked := record.Target{Process: summary.Process{
		PID: p.PID, Command: p.Command(), Executable: p.Executable, Arguments: p.Arguments,
	}}
	if l := o.Launch; l != nil {
		asked.Command, asked.Executable = filepath.Base(l.Executable), l.Executable
		asked.Arguments = l.Arguments
	}
	if stat, err := p.Stat(); err == nil {
		asked.StartTicks = stat.StartTicks
	}
	return asked
}

// untilSignal returns a context that ends by the next signal. The one after it ends allocscope.
func untilSignal() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	context.AfterFunc(ctx, stop)
	return ctx, stop
}

// receive receives marks of `allocscope mark`, unless another trace does, and of --marks.
func (o *Options) receive(marks *mark.Receiver) error {
	owner, err := folder.OwnerFromEnvironment(os.Getenv)
	if err != nil {
		return err
	}

	err = marks.Listen(o.PID, uint32(owner.UID))
	hasExited := errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
	if err != nil && !hasExited {
		slog.Warn(err.Error())
	}

	if o.Marks == "" {
		return nil
	}
	return marks.Follow(o.Marks)
}

// createFolder creates the output folder, which belongs to the user behind sudo.
func (o *Options) createFolder() (*folder.Folder, error) {
	owner, err := folder.OwnerFromEnvironment(os.Getenv)
	if err != nil {
		return nil, err
	}

	path := o.Output
	if path == "" { // linkLatest makes a link to it
		path = fmt.Sprintf("allocscope-%d-%s", o.PID, time.Now().Format("20060102-150405"))
	}
	return folder.Create(path, owner, o.Force)
}

// linkLatest makes allocscope-latest lead to the folder, where it has a default name.
func (o *Options) linkLatest(dir *folder.Folder) {
	if o.Output != "" && !o.LinksLatest {
		return
	}
	if err := dir.LinkLatest(); err != nil {
		slog.Warn(err.Error())
	}
}
