package tracer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/objects/worker"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
	"github.com/allocscope/allocscope/tracer/symbol"
	"github.com/allocscope/allocscope/tracer/tree"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// A Session traces a process and, with Options.Children, the processes of its tree that matter,
// from Open to Close. One goroutine at a time may call its methods.
type Session struct {
	// Process is the process of Options.PID. It may only be the launcher of the traced ones, see
	// IsTraced.
	Process *process.Process
	Options Options
	// askedInterval is Options.Interval as given; 0: allocscope chooses it.
	askedInterval uint64

	kernel     *kernel.Kernel
	tables     *unwind.Tables
	events     *eventReader
	debugFiles *symbol.DebugFiles
	sources    kernelSources
	targets    targetSet
	follower   *follower
	scanner    scanner
	gpus       gpuState
	faults     source.FaultThinner
	probing    *probing
	launched   *launchTracker   // nil: the process was running before
	runner     *overhead.Runner // nil: the overhead has no limit
	stepTimes  overhead.StepTimes

	costs calibrate.Costs // of the probes; zeros: the overhead has no limit

	objectWorker worker.Worker

	started uint64               // when Elapsed is 0: ns, CLOCK_MONOTONIC
	opened  uint64               // when tracing started; 0: it has not
	objects estimate.LiveObjects // of the last snapshot
	// liveObjects is their number.
	liveObjects atomic.Int64
	retired     losses // of the targets that have been dropped
	named       stack.Memory

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

	errTooManyTargets = errors.New("limit of traced processes reached")
)

// tablesTimeout bounds the wait for the unwind tables of a process before tracing starts. The
// tables of a C program are ready at once. The tables of a large one are built while it is being
// traced.
const tablesTimeout = 200 * time.Millisecond

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
		debugFiles: symbol.NewDebugFiles(), ended: make(chan struct{}),
	}
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

	if err := s.startProbing(ctx); err != nil {
		return err
	}
	debug.FreeOSMemory() // loading the BPF object takes a lot for a moment

	s.tables = unwind.NewTables(s.kernel.UnwindTables, s.kernel.TableSpec)
	if s.Options.Launch != nil {
		s.launched = &launchTracker{session: s, starts: make(chan programStart, maxStarts)}
	}
	s.events, err = startEvents(
		s.kernel, s.tables, s.targets.find, s.launched.noteStart, &s.stepTimes)
	if err != nil {
		return err
	}
	s.probing.events = s.events
	s.faults.Kernel = s.kernel
	s.gpus = gpuState{kernel: s.kernel, targets: &s.targets, library: s.Options.NVML}

	err = s.sources.attach(s.kernel, s.Options, s.Options.faultInterval(s.askedInterval))
	if err != nil {
		return err
	}
	s.probing.tracker.SeesMappings = s.sources.mapping.Attached
	if s.Options.Launch != nil {
		if err := s.launch(ctx); err != nil {
			return err
		}
	}
	if err := s.follow(ctx); err != nil {
		return err
	}

	s.start()
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
		Tree: tree.New(s.Process, s.Options.Children), session: s,
		failed: make(map[int]attachFailure),
	}
	s.scanner = scanner{
		kernel: s.kernel, events: s.events, probing: s.probing,
		targets: &s.targets, members: s.follower.Members,
	}
	return s.follower.open(ctx)
}

// start starts the clock with the first target, or without one. The clock of an earlier trace goes
// on.
func (s *Session) start() {
	if s.opened == 0 {
		s.opened = kernel.Monotonic()
		s.started = cmp.Or(s.Options.Started, s.opened)
	}
}

// attach makes a process a target. The caller keeps held, and the target opens the process once
// more. If the process exits meanwhile, the error is ErrExited, whatever has failed.
func (s *Session) attach(ctx context.Context, held *process.Process) error {
	if t := s.targets.find(uint32(held.PID)); s.launched != nil && t != nil { // before an execve
		s.retireAll([]*target{t})
	}
	if s.launched == nil || len(s.targets.list()) >= s.maxTargets() {
		s.retireEnded(0)
	}

	err := s.addTarget(ctx, held)
	if err != nil && held.IsExiting() {
		return exitedError(held)
	}
	return err
}

func (s *Session) addTarget(ctx context.Context, held *process.Process) error {
	if limit := s.maxTargets(); len(s.targets.list()) >= limit {
		return fmt.Errorf("pid %d: %w (%d)", held.PID, errTooManyTargets, limit)
	}

	p, err := process.Open(held.PID)
	if err != nil {
		return err
	}
	err = kernel.CheckReachable(p.PID)
	if !held.Alive() { // and another process may have its PID
		err = exitedError(held)
	}
	if err != nil {
		return errors.Join(err, p.Close())
	}

	t, err := newTarget(s, p)
	if err != nil {
		return err
	}
	s.targets.add(t)
	if err := s.attachTarget(ctx, t); err != nil {
		stopWorkers([]*target{t})
		s.targets.drop(t)
		return errors.Join(err, s.retire(t))
	}
	return nil
}

func (s *Session) maxTargets() int { return int(s.kernel.Targets.MaxEntries()) }

func exitedError(p *process.Process) error { return fmt.Errorf("pid %d: %w", p.PID, ErrExited) }

// retireEnded drops the targets that have ended, to make room, if they are more than most. It keeps
// half as many: the ones with the most objects in the last snapshot. Snapshots include these.
func (s *Session) retireEnded(most int) {
	isTraced := func(t *target) bool { return t.err() == nil }
	ended := slices.DeleteFunc(s.targets.list(), isTraced)
	objects := func(t *target) int { return len(s.objects[uint32(t.process.PID)]) }
	slices.SortStableFunc(ended, func(a, b *target) int { return cmp.Compare(objects(a), objects(b)) })
	if len(ended) > most {
		s.retireAll(ended[:len(ended)-most/2])
	}
}

// retireAll drops targets that have ended.
func (s *Session) retireAll(ended []*target) {
	if len(ended) == 0 {
		return
	}
	stopWorkers(ended)
	for _, t := range ended {
		s.targets.drop(t)
	}
	_ = s.retire(ended...) // probes that cannot be detached have gone with their process
}

func (s *Session) awaitExit() {
	<-s.Process.Exited(s.ctx.Done())
	if s.ctx.Err() == nil {
		s.endWhenDone()
	}
}

// endWhenDone ends the trace if the process of Options.PID and all targets have ended.
func (s *Session) endWhenDone() {
	for _, t := range s.targets.list() {
		if t.err() == nil {
			return
		}
	}
	if s.Process.Alive() {
		return
	}

	s.endOnce.Do(func() { close(s.ended) })
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

// Elapsed returns the time since tracing started, or since Options.Started; 0 before.
func (s *Session) Elapsed() time.Duration {
	started := cmp.Or(s.started, s.Options.Started)
	if started == 0 {
		return 0
	}
	return time.Duration(kernel.Monotonic() - started)
}

// Started returns when Elapsed is 0, in ns of CLOCK_MONOTONIC, as Options.Started.
func (s *Session) Started() uint64 { return s.started }

// Opened returns Elapsed when tracing started: 0, unless Options.Started is set.
func (s *Session) Opened() time.Duration { return time.Duration(s.opened - s.started) }

// sinceOpened returns the time since tracing started.
func (s *Session) sinceOpened() time.Duration { return s.Elapsed() - s.Opened() }

// Close detaches everything. The processes go on.
func (s *Session) Close() error {
	if s.ctx.Err() != nil {
		return nil
	}
	s.cancel()
	if s.launched != nil {
		s.launched.end()
	}
	s.objectWorker.Close()
	if s.runner != nil {
		s.runner.Close()
	}

	errs := []error{s.detach()}
	stopWorkers(s.targets.list())
	s.watcher.Wait()

	if s.events != nil {
		errs = append(errs, s.events.Close())
	}
	for _, t := range s.targets.list() {
		errs = append(errs, t.close(&s.reading))
	}
	if s.tables != nil {
		errs = append(errs, s.tables.Close())
	}
	if s.follower != nil {
		s.follower.Close()
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
		closes = append(closes, t.detach)
	}
	for _, l := range s.sources.links {
		closes = append(closes, l.Close)
	}
	if s.probing != nil && s.probing.shim != nil {
		closes = append(closes, s.probing.shim.Close)
	}
	return parallel(closes)
}

// parallel calls all functions at once and joins their errors.
func parallel(calls []func() error) error {
	errs := make([]error, len(calls))
	var running sync.WaitGroup
	for i, call := range calls {
		running.Go(func() { errs[i] = call() })
	}
	running.Wait()
	return errors.Join(errs...)
}
