package tracer

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/overhead/calibrate"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// A Session traces a process and, where asked for, those of its tree that matter, from Open to Close. Its methods may be
// called from one goroutine at a time.
type Session struct {
	// Process that was asked for. It may be one that only launched what is traced: see Traced.
	Process *process.Process
	Options Options

	kernel  *kernel
	tables  *unwind.Tables
	notices *noticeReader
	links   []link.Link
	// sources of all processes: the kernel's own events
	mapping, fault Source
	started        uint64 // ns, CLOCK_MONOTONIC; 0: not yet
	family         *family
	looker         looker
	gpus           gpuWatch
	objects        liveObjects // of the last snapshot
	watch          *watch
	governor       *governor          // nil: without a limit
	meter          *meter             // of the governor
	worked         controller.Reading // when work was counted last; the watch guards it
	prices         calibrate.Prices   // of what probes do; zeros where the overhead has no limit
	unpriced       error              // why some of them are defaults
	asked          uint64             // bytes between samples that the user wants; 0: as is fit
	stepTimes      stepTimes
	retired        losses // of targets that are no more
	// reading is held while others than the session's caller look at a process, and while one is let go.
	reading sync.Mutex

	mu      sync.Mutex
	targets []*target // in the order in which they were attached

	stop    chan struct{}
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
func Open(options Options) (*Session, error) {
	asked := options.Interval
	options = options.withDefaults()
	p, err := process.Open(options.PID)
	if err != nil {
		return nil, err
	}
	s := &Session{Process: p, Options: options, asked: asked, stop: make(chan struct{}), ended: make(chan struct{})}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Session) open() error {
	if err := checkReachable(s.Process.PID); err != nil {
		return err
	}
	var err error
	if s.kernel, err = loadKernel(s.Options); err != nil {
		return err
	}
	if err := s.startWatch(); err != nil {
		return err
	}
	debug.FreeOSMemory()
	s.tables = unwind.NewTables(s.kernel.Maps[bpf.KernelMapUnwindTables], s.kernel.table)
	if s.notices, err = startNotices(s.kernel, s.tables, s.target); err != nil {
		return err
	}
	exec, err := attachExec(s.kernel)
	if err != nil {
		return err
	}
	s.links = append(s.links, exec)
	s.attachKernelSources()
	if err := s.openTargets(); err != nil {
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
		s.started = monotonic()
	}
}

// attach makes a process a target. The caller holds the process; the target has a hold of its own. Of a process that
// exits meanwhile the error says so, whatever that has made fail.
func (s *Session) attach(held *process.Process) error {
	s.retireEnded()
	err := s.add(held)
	if err != nil && held.Ends() {
		return errGone(held)
	}
	return err
}

func (s *Session) add(held *process.Process) error {
	if most := int(s.kernel.Maps[bpf.KernelMapTargets].MaxEntries()); len(s.list()) >= most {
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
	s.mu.Lock()
	s.targets = append(s.targets, t)
	s.mu.Unlock()
	if err := t.attach(); err != nil {
		halt([]*target{t})
		s.drop(t)
		return errors.Join(err, t.retire(&s.retired))
	}
	return nil
}

// target finds a target by its PID; nil: there is none.
func (s *Session) target(pid uint32) *target {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.targets {
		if uint32(t.process.PID) == pid {
			return t
		}
	}
	return nil
}

func (s *Session) list() []*target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.targets)
}

func (s *Session) drop(t *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = slices.DeleteFunc(s.targets, func(other *target) bool { return other == t })
}

// retireEnded forgets the targets that have ended, once another takes their place: until then they can be looked at.
func (s *Session) retireEnded() {
	lives := func(t *target) bool { return t.err() == nil }
	ended := slices.DeleteFunc(s.list(), lives)
	halt(ended)
	for _, t := range ended {
		s.drop(t)
		_ = t.retire(&s.retired) // what cannot be detached has gone with its process
	}
}

func (s *Session) awaitExit() {
	<-s.Process.Exited(s.stop)
	select {
	case <-s.stop:
	default:
		s.endWhenDone()
	}
}

// endWhenDone ends the trace if the process asked for and all targets have ended.
func (s *Session) endWhenDone() {
	for _, t := range s.list() {
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
func (s *Session) Elapsed() time.Duration { return time.Duration(monotonic() - s.started) }

func monotonic() uint64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return 0 // cannot happen: the clock always exists
	}
	return uint64(now.Nano())
}

// Close detaches everything. The processes go on.
func (s *Session) Close() error {
	select {
	case <-s.stop:
		return nil
	default:
		close(s.stop)
	}
	if s.governor != nil {
		s.governor.close()
	}
	errs := []error{s.detach()}
	halt(s.list())
	s.watcher.Wait()
	if s.notices != nil {
		errs = append(errs, s.notices.close())
	}
	for _, t := range s.list() {
		errs = append(errs, t.close())
	}
	if s.tables != nil {
		errs = append(errs, s.tables.Close())
	}
	if s.family != nil {
		s.family.Close()
	}
	errs = append(errs, s.looker.others.close(), s.gpus.close())
	if s.kernel != nil {
		s.kernel.Close()
	}
	return errors.Join(append(errs, s.Process.Close())...)
}

// errGone says that a process is gone.
func errGone(p *process.Process) error { return fmt.Errorf("pid %d: %w", p.PID, ErrExited) }
