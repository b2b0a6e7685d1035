package tracer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/mapping"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// errExecuted ends a target whose process has executed another program: what was traced is gone with its memory.
var errExecuted = errors.New("executed another program")

// A target is one process with all sources attached.
type target struct {
	process  *process.Process
	kernel   *kernel
	session  *Session
	heap     Source
	links    []link.Link
	stacks   *stackTable
	unwinder *unwinder
	steps    *stepCounter
	space    *mapping.Set
	pages    *process.Pages // nil where it cannot be opened
	from     time.Duration  // when counting began, since the start of the trace
	// vanished mappings, in bytes, by all reconciliations.
	vanished int64
	folded   map[uint64]*sum // tallies that were taken out of the kernel, by stack

	stop   chan struct{}
	exited <-chan struct{}
	mu     sync.Mutex
	ending error // why it has ended; nil: it has not
}

// newTarget prepares what stacks need: how to walk them, and how to name them. It owns p, also where it fails.
func newTarget(s *Session, p *process.Process) (*target, error) {
	t := &target{process: p, kernel: s.kernel, session: s, folded: make(map[uint64]*sum), stop: make(chan struct{})}
	maps, err := p.Maps()
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	t.stacks = newStackTable(p, s.kernel.Maps[bpf.KernelMapSeen], newNamer(p, s.Options.NativeFrames))
	t.steps = newStepCounter(s.kernel, p, s.Options.StepSymbol)
	if t.unwinder, err = startUnwinder(s.kernel, s.tables, p, maps, t.stacks, t.steps.update); err != nil {
		return nil, errors.Join(err, t.stacks.close(), p.Close())
	}
	return t, nil
}

// attach attaches all sources while the target is still waiting, so that what they see begins at one moment.
func (t *target) attach() error {
	maps, err := t.process.Maps()
	if err != nil {
		return err
	}
	if err := t.kernel.setTarget(t.process.PID, bpf.KernelTargetStateTARGET_WAITING); err != nil {
		return err
	}
	t.heap, t.links = attachHeap(t.kernel, t.process, maps)
	if !t.heap.Attached && !t.session.mapping.Attached {
		return fmt.Errorf("%w: heap: %s; mapping: %s", ErrNoSource, t.heap.Reason, t.session.mapping.Reason)
	}
	t.session.tables.Wait(tablesWait)
	return t.start()
}

// start begins to count. Mappings are read afterwards: replaying a call that they already contain changes nothing.
func (t *target) start() error {
	if !t.process.Alive() {
		return errGone(t.process)
	}
	t.session.begin()
	t.from = t.session.Elapsed()
	if err := t.kernel.setTarget(t.process.PID, bpf.KernelTargetStateTARGET_TRACED); err != nil {
		return err
	}
	maps, err := t.process.Maps()
	if err != nil {
		return err
	}
	t.space = mapping.New(maps, t.process.StartBreak())
	t.pages, _ = t.process.Pages()
	t.exited = t.process.Exited(t.stop)
	go t.awaitExit()
	return nil
}

func (t *target) awaitExit() {
	<-t.exited
	select {
	case <-t.stop:
	default:
		t.end(ErrExited)
		t.session.endWhenDone()
	}
}

func (t *target) end(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ending == nil {
		t.ending = why
	}
}

// err says why the target has ended: ErrExited or errExecuted; nil: it has not.
func (t *target) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ending
}

func (t *target) sources() []Source {
	sources := append([]Source{t.heap}, t.unwinder.source()...)
	if step := t.steps.source(); step.Attached || t.session.Options.StepSymbol != "" {
		sources = append(sources, step)
	}
	for i := range sources {
		sources[i].PID = t.process.PID
	}
	return sources
}

// detach takes the probes away.
func (t *target) detach() error {
	err := errors.Join(probe.Close(t.links), t.steps.close())
	t.links = nil
	return err
}

// retire detaches from a process and makes the kernel side forget it, while the trace goes on.
func (t *target) retire(lost *losses) error {
	errs := []error{t.detach(), t.forget()}
	lost.add(t)
	return errors.Join(append(errs, t.close())...)
}

// forget takes all that belongs to the process out of the kernel's maps.
func (t *target) forget() error {
	pid := uint32(t.process.PID)
	for _, name := range []string{bpf.KernelMapTargets, bpf.KernelMapMappings, bpf.KernelMapPythons, bpf.KernelMapAsked} {
		_ = t.kernel.Maps[name].Delete(pid) // it may not be there
	}
	t.session.notices.forget(pid)
	t.stacks.forget()
	err := deleteFrom(t.kernel.Maps[bpf.KernelMapLive], func(key *bpf.KernelAddress, _ *bpf.KernelAllocation) bool { return key.Tgid == pid })
	return errors.Join(err, deleteFrom(t.kernel.Maps[bpf.KernelMapTallies], func(key *bpf.KernelTallyKey, _ *bpf.KernelTally) bool { return key.Tgid == pid }))
}

// close lets go of the process.
func (t *target) close() error {
	close(t.stop)
	t.unwinder.close()
	errs := []error{t.stacks.close()}
	if t.pages != nil {
		errs = append(errs, t.pages.Close())
	}
	if t.exited != nil {
		<-t.exited
	}
	return errors.Join(append(errs, t.process.Close())...)
}
