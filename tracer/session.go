package tracer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tree"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// A Session traces a process and, where asked for, those of its tree that matter, from Open to Close. Its methods may be
// called from one goroutine at a time.
type Session struct {
	// Process that was asked for. It may be one that only launched what is traced: see Traced.
	Process *process.Process
	Options Options

	kernel *kernel.Kernel
	tables *unwind.Tables
	events *eventReader
	links  []link.Link
	// sources of all processes: the kernel's own events
	mapping, fault source.Status
	started        uint64 // ns, CLOCK_MONOTONIC; 0: not yet
	follower       *follower
	scanner        scanner
	gpus           gpuState
	objects        estimate.LiveObjects // of the last snapshot
	probing        *probing
	controller     *overhead.Controller // nil: without a limit
	meter          *overhead.Meter      // of the governor
	prices         calibrate.Costs      // of what probes do; zeros where the overhead has no limit
	unpriced       error                // why some of them are defaults
	asked          uint64               // bytes between samples that the user wants; 0: as is fit
	stepTimes      stepTimes
	retired        losses // of targets that are no more
	// reading is held while others than the session's caller look at a process, and while one is let go.
	reading sync.Mutex

	targets targetSet

	ctx     context.Context // of the session's goroutines: Close cancels it
	cancel  context.CancelFunc
	watcher sync.WaitGroup // of what goes on beside
	// ended is closed when there is nothing more to trace; ending says why.
	ended  chan struct{}
	ending error
	once   sync.Once
}

// Why a trace ends by itself.
var ErrExited = errors.New("target exited")

// tablesWait is how long counting waits for unwind tables. Those of a C program are there at once; those of a large one
// are made while counting goes on.
const tablesWait = 200 * time.Millisecond

// errTooMany means that there is no room for another target.
var errTooMany = errors.New("as many processes are traced as can be")

// ErrNoSource means that nothing could be attached.
var ErrNoSource = errors.New("no source could be attached")

// Open attaches to a process, or to those of its tree that matter. A source that cannot attach is named in Sources with
// its reason, and the rest goes on; it is an error if none can. Nothing is stopped nor written to.
//
// If ctx ends before Open returns, everything is detached and the error wraps that of ctx. Later ctx means nothing: the
// session ends with Close.
func Open(ctx context.Context, options Options) (*Session, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	asked := options.Interval
	options = options.withDefaults()
	p, err := process.Open(options.PID)
	if err != nil {
		return nil, err
	}
	s := &Session{Process: p, Options: options, asked: asked, ended: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Session) open(ctx context.Context) error {
	if err := kernel.CheckReachable(s.Process.PID); err != nil {
		return err
	}
	var err error
	if s.kernel, err = kernel.Load(s.Options.kernel()); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.startProbing(ctx); err != nil {
		return err
	}
	debug.FreeOSMemory()
	s.tables = unwind.NewTables(s.kernel.UnwindTables, s.kernel.TableSpec)
	if s.events, err = startEvents(s.kernel, s.tables, s.targets.find); err != nil {
		return err
	}
	s.probing.events = s.events
	s.follower = &follower{Tree: tree.New(s.Process, s.Options.Children), session: s, failed: make(map[int]attachFailure)}
	s.scanner.kernel, s.scanner.targets, s.scanner.members = s.kernel, &s.targets, s.follower.Members
	s.gpus = gpuState{kernel: s.kernel, targets: &s.targets, library: s.Options.NVML}
	exec, err := source.AttachExec(s.kernel)
	if err != nil {
		return err
	}
	s.links = append(s.links, exec)
	s.attachKernelSources()
	if err := s.follower.open(ctx); err != nil {
		return err
	}
	s.begin()
	s.watcher.Go(s.awaitExit)
	if s.Options.Overhead > 0 {
		s.govern()
	}
	return nil
}

// begin starts the clock.
func (s *Session) begin() {
	if s.started == 0 {
		s.started = kernel.Monotonic()
	}
}

// attach makes a process a target. The caller holds the process; the target has a hold of its own. Of a process that
// exits meanwhile the error says so, whatever that has made fail.
func (s *Session) attach(ctx context.Context, held *process.Process) error {
	s.retireEnded()
	err := s.add(ctx, held)
	if err != nil && held.IsExiting() {
		return errGone(held)
	}
	return err
}

func (s *Session) add(ctx context.Context, held *process.Process) error {
	if most := int(s.kernel.Targets.MaxEntries()); len(s.targets.list()) >= most {
		return fmt.Errorf("pid %d: %w: %d", held.PID, errTooMany, most)
	}
	p, err := process.Open(held.PID)
	if err != nil {
		return err
	}
	if !held.Alive() { // and the PID may be another's
		return errors.Join(errGone(held), p.Close())
	}
	t, err := newTarget(s, p)
	if err != nil {
		return err
	}
	s.targets.add(t)
	if err := t.attach(ctx); err != nil {
		stopWorkers([]*target{t})
		s.targets.drop(t)
		return errors.Join(err, t.retire(&s.retired))
	}
	return nil
}

// retireEnded forgets the targets that have ended, once another takes their place: until then they can be looked at.
func (s *Session) retireEnded() {
	lives := func(t *target) bool { return t.err() == nil }
	ended := slices.DeleteFunc(s.targets.list(), lives)
	stopWorkers(ended)
	for _, t := range ended {
		s.targets.drop(t)
		_ = t.retire(&s.retired) // what cannot be detached has gone with its process
	}
}

func (s *Session) awaitExit() {
	<-s.Process.Exited(s.ctx.Done())
	if s.ctx.Err() == nil {
		s.endWhenDone()
	}
}

// endWhenDone ends the trace if the process asked for and all targets have ended.
func (s *Session) endWhenDone() {
	for _, t := range s.targets.list() {
		if t.err() == nil {
			return
		}
	}
	if s.Process.Alive() {
		return
	}
	s.once.Do(func() {
		s.ending = ErrExited
		close(s.ended)
	})
}

// Done is closed when there is nothing more to trace.
func (s *Session) Done() <-chan struct{} { return s.ended }

// Err says why Done is closed: ErrExited.
func (s *Session) Err() error {
	select {
	case <-s.ended:
		return s.ending
	default:
		return nil
	}
}

// Elapsed since counting began.
func (s *Session) Elapsed() time.Duration { return time.Duration(kernel.Monotonic() - s.started) }

// Close detaches everything. The processes go on.
func (s *Session) Close() error {
	if s.ctx.Err() != nil {
		return nil
	}
	s.cancel()
	if s.controller != nil {
		s.controller.Close()
	}
	errs := []error{s.detach()}
	stopWorkers(s.targets.list())
	s.watcher.Wait()
	if s.events != nil {
		errs = append(errs, s.events.close())
	}
	for _, t := range s.targets.list() {
		errs = append(errs, t.close())
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
	return errors.Join(append(errs, s.Process.Close())...)
}

// errGone says that a process is gone.
func errGone(p *process.Process) error { return fmt.Errorf("pid %d: %w", p.PID, ErrExited) }
