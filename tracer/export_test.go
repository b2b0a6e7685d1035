package tracer

import (
	"errors"
	"time"

	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/liveness"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
	"github.com/allocscope/allocscope/tracer/unwind"
)

func init() { slowAttach = time.Hour }

func Kernel(s *Session) *kernel.Kernel { return s.kernel }

// WithFilterVerdict returns the options for a kernel on which return probes are as safe for processes
// with a seccomp filter as the verdict says.
func WithFilterVerdict(options Options, verdict error) Options {
	options.checkFilter = func() error { return verdict }
	return options
}

func Tables(s *Session) *unwind.Tables { return s.tables }

// Probing returns the object that opens and closes probes, as for the overhead controller.
func Probing(s *Session) *probing { return s.probing }

// Schedule returns the periods in which the probes of the heap were open.
func Schedule(s *Session) *estimate.Schedule { return &s.probing.schedule }

// Tracker returns the objects of bursts that are checked from outside.
func Tracker(s *Session) *liveness.Tracker { return &s.probing.tracker }

// Budget returns the budget of page scans.
func Budget(s *Session) *residency.Budget { return &s.scanner.budget }

// components are the parts of a target that production calls.
type components struct {
	PID     int
	Heap    *source.Heap
	Tensors *source.Tensors
	GPU     *source.GPU
	Stacks  *stack.Table
	Pages   *residency.Tracker
	// FromStart is set if it is traced from its first allocation on.
	FromStart bool
}

// Targets returns the components of all targets in the order of their attach, ended ones included.
func Targets(s *Session) (all []components) {
	for _, t := range s.targets.list() {
		all = append(all, components{
			PID: t.process.PID, Heap: t.sources.Heap, Tensors: t.sources.Tensors,
			GPU:    t.sources.GPU,
			Stacks: t.stacks, Pages: t.pages, FromStart: t.fromStart,
		})
	}
	return all
}

// Attach makes a process a target, whether it is in the tree or not. meanwhile runs once the target
// is prepared and before it is attached; nil: nothing happens in between, as in production.
func Attach(s *Session, held *process.Process, meanwhile func()) error {
	if meanwhile == nil {
		return s.targets.add(s.ctx, held)
	}

	p, err := process.Open(held.PID)
	if err != nil {
		return err
	}
	prepared, err := s.targets.prepare(p)
	if err != nil {
		return err
	}

	meanwhile()
	attached, err := s.targets.attach(s.ctx, prepared)
	if err == nil {
		err = s.targets.trace(attached)
	}
	return errors.Join(err, s.targets.retire(stop(prepared.target)))
}

// Detach gives a target up, as the next attach does with a target that has ended.
func Detach(s *Session, pid int) error {
	t := s.targets.find(uint32(pid))
	if t == nil {
		return nil
	}

	stopped := stop(t)
	s.targets.drop(t)
	return s.targets.retire(stopped)
}

// Reattach attaches the probes in a target again, as after the end of the thread by which the kernel
// knew it.
func Reattach(s *Session, pid int) { s.targets.find(uint32(pid)).reattach(s.probing) }

// Flush waits until all events in the ring buffer have been dispatched.
func Flush(s *Session) { s.events.Flush() }

// NewCredit returns how launched programs are held from now on: a function that takes a time
// that they have waited, and reports whether the next ones wait.
func NewCredit(now time.Time) func(held time.Duration, now time.Time) bool {
	limit, isHolding := startLimit, true
	limit.Accrue(now)
	return func(held time.Duration, now time.Time) bool {
		limit.Spend(held)
		limit.Accrue(now)
		isHolding = mayHold(limit.Credit(), isHolding)
		return isHolding
	}
}

// FillStarts notes so many starts of programs at once, none of which runs, that some are lost.
func FillStarts(s *Session) {
	for range 4 * maxStarts {
		s.launched.keep(programStart{pid: 1 << 30, at: kernel.Monotonic()})
	}
}
