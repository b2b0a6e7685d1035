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
	"github.com/allocscope/allocscope/tracer/mapping"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Session traces one process from Open to Close. Its methods may be called from one goroutine at a time.
type Session struct {
	Process *process.Process
	Options Options

	kernel   *kernel
	links    []link.Link
	sources  []Source
	started  uint64 // ns, CLOCK_MONOTONIC
	notices  *noticeReader
	stacks   *stackTable
	unwinder *unwinder
	space    *mapping.Set
	pages    *process.Pages // nil where it cannot be opened
	watcher  watcher
	// vanished mappings, in bytes, by all reconciliations.
	vanished int64
	folded   map[uint64]*sum // tallies that were taken out of the kernel, by stack

	stop   chan struct{}
	exited <-chan struct{} // closed when nobody looks at the process's end any more
	// ended is closed when there is nothing more to trace; ending says why.
	ended  chan struct{}
	ending error
	once   sync.Once
}

// Why a trace ends by itself.
var (
	ErrExited   = errors.New("target exited")
	ErrExecuted = errors.New("target executed another program")
)

// tablesWait is how long counting waits for unwind tables. Those of a C program are there at once; those of a large one
// are made while counting goes on.
const tablesWait = 200 * time.Millisecond

// ErrNoSource means that nothing could be attached.
var ErrNoSource = errors.New("no source could be attached")

// Open attaches to a process. A source that cannot attach is named in Sources with its reason, and the rest goes on; it
// is an error if none can. The process is neither stopped nor written to.
func Open(options Options) (*Session, error) {
	options = options.withDefaults()
	p, err := process.Open(options.PID)
	if err != nil {
		return nil, err
	}
	s := &Session{Process: p, Options: options, folded: make(map[uint64]*sum), stop: make(chan struct{}), ended: make(chan struct{})}
	if err := s.open(); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Session) open() error {
	maps, err := s.Process.Maps()
	if err != nil {
		return err
	}
	if err := checkReachable(s.Process.PID); err != nil {
		return err
	}
	if s.kernel, err = loadKernel(s.Options); err != nil {
		return err
	}
	debug.FreeOSMemory()
	if err := s.openStacks(maps); err != nil {
		return err
	}
	if err := s.kernel.setTarget(s.Process.PID, bpf.KernelTargetStateTARGET_WAITING); err != nil {
		return err
	}
	if err := s.attach(maps); err != nil {
		return err
	}
	s.unwinder.tables.Wait(tablesWait)
	return s.start()
}

// openStacks prepares what stacks need: how to walk them, and how to name them.
func (s *Session) openStacks(maps []process.Mapping) (err error) {
	s.stacks = newStackTable(s.Process, s.kernel.Maps[bpf.KernelMapSeen], newNamer(s.Process, s.Options.NativeFrames))
	if s.unwinder, err = startUnwinder(s.kernel, s.Process, maps, s.stacks); err != nil {
		return err
	}
	onExec := func() { s.end(ErrExecuted) }
	s.notices, err = startNotices(s.kernel.Maps[bpf.KernelMapNotices], s.stacks, s.unwinder, onExec)
	return err
}

// attach attaches all sources while the target is still waiting, so that what they see begins at one moment.
func (s *Session) attach(maps []process.Mapping) error {
	exec, err := attachExec(s.kernel)
	if err != nil {
		return err
	}
	s.links = append(s.links, exec)
	heap, heapLinks := attachHeap(s.kernel, s.Process, maps)
	s.links = append(s.links, heapLinks...)
	mapping, mappingLinks := attachMapping(s.kernel)
	s.links = append(s.links, mappingLinks...)
	if errors.Is(heap.err, probe.Err32Bit) {
		mapping.Reason = "system calls of a 32-bit program are not traced: its mappings come from /proc, without stacks"
	}
	s.sources = []Source{heap, mapping}
	if !heap.Attached && !mapping.Attached {
		return fmt.Errorf("%w: heap: %s; mapping: %s", ErrNoSource, heap.Reason, mapping.Reason)
	}
	return nil
}

// start begins to count. Mappings are read afterwards: replaying a call that they already contain changes nothing.
func (s *Session) start() error {
	if !s.Process.Alive() {
		return fmt.Errorf("pid %d: %w", s.Process.PID, ErrExited)
	}
	s.started = monotonic()
	if err := s.kernel.setTarget(s.Process.PID, bpf.KernelTargetStateTARGET_TRACED); err != nil {
		return err
	}
	maps, err := s.Process.Maps()
	if err != nil {
		return err
	}
	s.space = mapping.New(maps, s.Process.StartBreak())
	s.pages, _ = s.Process.Pages()
	s.exited = s.Process.Exited(s.stop)
	go s.awaitExit()
	return nil
}

func (s *Session) awaitExit() {
	<-s.exited
	select {
	case <-s.stop:
	default:
		s.end(ErrExited)
	}
}

func (s *Session) end(why error) {
	s.once.Do(func() {
		s.ending = why
		close(s.ended)
	})
}

// Done is closed when the target has exited or executed another program.
func (s *Session) Done() <-chan struct{} { return s.ended }

// Err says why Done is closed: ErrExited or ErrExecuted.
func (s *Session) Err() error {
	select {
	case <-s.ended:
		return s.ending
	default:
		return nil
	}
}

// Sources tells what is attached, what is not, and why.
func (s *Session) Sources() []Source { return append(slices.Clip(s.sources), s.unwinder.source()...) }

func (s *Session) isAttached(name string) bool {
	for _, source := range s.sources {
		if source.Name == name {
			return source.Attached
		}
	}
	return false
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

// Close detaches everything. The process goes on.
func (s *Session) Close() error {
	select {
	case <-s.stop:
		return nil
	default:
		close(s.stop)
	}
	errs := []error{probe.Close(s.links)}
	if s.notices != nil {
		errs = append(errs, s.notices.close())
	}
	if s.unwinder != nil {
		errs = append(errs, s.unwinder.close())
	}
	if s.stacks != nil {
		errs = append(errs, s.stacks.close())
	}
	if s.pages != nil {
		errs = append(errs, s.pages.Close())
	}
	if s.kernel != nil {
		s.kernel.Close()
	}
	if s.exited != nil {
		<-s.exited
	}
	return errors.Join(append(errs, s.Process.Close())...)
}
