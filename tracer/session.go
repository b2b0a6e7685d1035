package tracer

import (
	"context"
	"errors"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/allocscope/allocscope/tracer/container"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/overhead/duty"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/symbol"
	"github.com/allocscope/allocscope/tracer/tree"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// A Session traces a process and, with Options.Children, the processes of its tree that matter,
// from Open to Close. One goroutine at a time may call its methods.
type Session struct {
	// Process is the process of Options.PID. It may only be the launcher of the traced ones, see
	// IsTraced.
	Process      *process.Process
	Options      Options
	clock        // since the start of the trace
	objectReader // of the targets
	fileReader

	// askedInterval is Options.Interval as given; 0: allocscope chooses it.
	askedInterval uint64

	kernel    *kernel.Kernel
	tables    *unwind.Tables
	events    *eventReader
	system    *source.System
	targets   lifecycle
	follower  *follower
	scanner   scanner
	gpus      gpuState
	probing   *probing
	launched  *launchTracker   // nil: the process was running before
	runner    *overhead.Runner // nil: the overhead has no limit
	own       *duty.Budget     // of allocscope itself
	stepTimes overhead.StepTimes

	costs calibrate.Costs // of the probes; zeros: the overhead has no limit

	objects estimate.LiveObjects // of the last snapshot
	// liveObjects is their number.
	liveObjects atomic.Int64

	// following is held while the process tree or a snapshot is read, and while processes become
	// targets and are retired.
	following sync.Mutex
	// reading is held while a goroutine other than the caller's reads a process, while heap probes
	// come and go, and while a process is closed.
	reading sync.Mutex

	ctx     context.Context // of the session's goroutines; Close cancels it
	cancel  context.CancelFunc
	watcher sync.WaitGroup // the session's goroutines
	ended   chan struct{}  // closed when there is nothing more to trace
	endOnce sync.Once
}

var (
	// ErrExited means that a process has exited.
	ErrExited = errors.New("target exited")
	// ErrNoSource means that no source could be attached.
	ErrNoSource = errors.New("no source could be attached")
)

// Open attaches to a process, or to the processes of its tree that matter. Sources names each
// source that could not be attached with its reason; the others are attached. It is an error if
// none could be.
//
// If ctx ends before Open returns, Open detaches and closes everything, and its error wraps the
// error of ctx. Afterwards ctx has no effect: the session lasts until Close.
func Open(ctx context.Context, options Options) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}

	s := &Session{
		Options: options.withDefaults(), askedInterval: options.Interval,
		clock: clock{earlier: options.Started}, ended: make(chan struct{}),
		own: duty.NewBudget(max(options.Overhead, options.OwnFloor)),
	}
	s.targets.session, s.targets.debugFiles = s, symbol.NewDebugFiles()
	s.fileReader = fileReader{&s.targets.targetSet, &s.reading}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))

	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open checks ctx after each step that takes long.
func (s *Session) open(ctx context.Context) error {
	var err error
	if s.Options.Launch == nil {
		if err := s.openProcess(); err != nil {
			return err
		}
	}
	if s.kernel, err = kernel.Load(s.Options.kernel()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}

	s.kernel.Preload(s.Options.walkers()...) // while the costs are measured
	if err := s.startProbing(ctx); err != nil {
		return err
	}
	s.watcher.Go(debug.FreeOSMemory) // loading the BPF object takes a lot for a moment

	s.tables = unwind.NewTables(
		s.kernel.UnwindTables, s.kernel.TableSpec, unwind.OpenCache(s.Options.TableCache))
	if s.Options.Launch != nil {
		s.launched = &launchTracker{session: s, starts: make(chan programStart, maxStarts)}
	}
	s.events, err = startEvents(s.kernel, s.tables, s.targets.find, &s.stepTimes)
	if err != nil {
		return err
	}
	s.probing.tallies.events = s.events
	s.gpus = gpuState{
		kernel: s.kernel, targets: &s.targets.targetSet, probing: s.probing, library: s.Options.NVML,
	}
	s.objectReader.open(s)

	s.system, err = source.AttachSystem(s.kernel, source.SystemOptions{
		FaultInterval: s.Options.faultInterval(s.askedInterval), Wants: s.Options.wants,
	})
	if err != nil {
		return err
	}
	s.probing.tracker.SeesMappings = s.system.IsAttached("mapping")
	if s.launched != nil {
		if err := s.launched.open(ctx); err != nil {
			return err
		}
	}
	if err := s.follow(ctx); err != nil {
		return err
	}

	s.startClock()
	if s.launched != nil {
		s.launched.running.Go(s.launched.run)
	}
	s.watcher.Go(s.awaitExit)
	if s.Options.Overhead > 0 {
		return s.startRunner()
	}
	return nil
}

// openProcess opens the process of Options.PID.
func (s *Session) openProcess() (err error) {
	if s.Process, err = process.Open(s.Options.PID); err != nil {
		return err
	}
	return kernel.CheckReachable(s.Process.PID)
}

// follow begins to follow the process tree, and attaches to those processes of it that matter.
func (s *Session) follow(ctx context.Context) error {
	s.follower = &follower{
		Tree: tree.New(s.Process, s.Options.Children, s.own), session: s,
		failed:    make(map[int]attachFailure),
		census:    tree.Census{Limit: s.own.Account(duty.ProcessTables)},
		container: container.NewReader(s.Process),
	}
	s.scanner = scanner{
		kernel: s.kernel, events: s.events, probing: s.probing,
		targets: &s.targets.targetSet, members: s.follower.Members,
		faults: source.FaultThinner{Kernel: s.kernel},
		budget: residency.Budget{Limit: s.own.Account(duty.Scans)},
		others: residency.Others{Limit: s.own.Account(duty.OtherProcesses)},
	}
	return s.follower.open(ctx)
}

func (s *Session) awaitExit() {
	<-s.Process.Exited(s.ctx.Done())
	if s.ctx.Err() == nil {
		s.targets.endWhenDone()
	}
}

// Done returns a channel that is closed when there is nothing more to trace.
func (s *Session) Done() <-chan struct{} { return s.ended }

// Err returns ErrExited once Done is closed, and nil before.
func (s *Session) Err() error {
	select {
	case <-s.ended:
		return ErrExited
	default:
		return nil
	}
}

// Close detaches everything. The processes go on.
func (s *Session) Close() error {
	if s.ctx.Err() != nil {
		return nil
	}
	s.cancel()
	if s.launched != nil {
		s.launched.end()
	}
	s.worker.Close()
	if s.runner != nil {
		s.runner.Close()
	}

	errs := []error{s.detach()}

	stopped := stop(s.targets.list()...)
	s.watcher.Wait()
	if s.events != nil {
		errs = append(errs, s.events.Close())
	}
	errs = append(errs, stopped.close(&s.reading))
	if s.tables != nil {
		errs = append(errs, s.tables.Close())
	}
	if s.follower != nil {
		s.follower.Close()
		s.follower.container.Close()
	}
	errs = append(errs, s.scanner.others.Close(), s.gpus.nvml.Close())
	if s.kernel != nil {
		s.kernel.Close()
	}
	if s.Process != nil {
		errs = append(errs, s.Process.Close())
	}
	return errors.Join(errs...)
}

// detach detaches all probes at once, because the kernel waits for the end of those that are
// running.
func (s *Session) detach() error {
	var closes []func() error
	for _, t := range s.targets.list() {
		closes = append(closes, t.sources.Close)
	}
	if s.system != nil {
		closes = append(closes, s.system.Close)
	}
	if s.probing != nil && s.probing.shim != nil {
		closes = append(closes, s.probing.shim.Close)
	}
	return source.InParallel(closes)
}
