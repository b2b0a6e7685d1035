package tracer

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	nvml "github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/residency/pages"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
	"github.com/cilium/ebpf"
)

// errAllocatorNotLoaded ends a target that was attached to before it had an allocator.
var errAllocatorNotLoaded = errors.New("was attached to while it was being loaded")

// A target is one process with all sources attached.
type target struct {
	process     *process.Process
	kernel      *kernel.Kernel
	session     *Session
	heap        source.Heap
	stacks      *stack.Table
	unwinder    *stack.Unwinder
	steps       *source.Steps
	tensors     *source.Tensors
	gpu         *source.GPU
	space       *addrspace.IntervalSet
	pages       *residency.Tracker // nil where the page map cannot be read, which noLedger says
	noPages     error
	from        time.Duration // when counting began, since the start of the trace
	tracedSince uint64        // the same in ns, CLOCK_MONOTONIC; the session's watch guards it
	// vanished mappings, in bytes, by all reconciliations.
	vanished int64
	// released by madvise since the pages were looked at last
	released []pages.Span
	// folded are tallies that were taken out of the kernel, by stack; foldedDevices those of what is on GPUs.
	folded        map[uint64]*estimate.StackTotals
	foldedDevices map[nvml.Key]*estimate.StackTotals

	image   process.Image  // the program that was found at first
	parent  int            // its PID then
	stop    chan struct{}  // closed when nobody looks at the process any more
	watcher sync.WaitGroup // of the process's end
	mu      sync.Mutex
	ending  error // why it has ended; nil: it has not
}

// newTarget prepares what stacks need: how to walk them, and how to name them. It owns p, also where it fails.
func newTarget(s *Session, p *process.Process) (*target, error) {
	t := &target{process: p, kernel: s.kernel, session: s, folded: make(map[uint64]*estimate.StackTotals), foldedDevices: make(map[nvml.Key]*estimate.StackTotals), stop: make(chan struct{})}
	t.heap.Kernel, t.heap.Pid = s.kernel, p.PID
	stat, err := p.Stat() // before the maps, so that an execution after them is noticed
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	t.image, t.parent = stat.Image, stat.Parent
	maps, err := p.Maps()
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	t.stacks = stack.NewTable(p, stack.NewNamer(p, s.Options.NativeFrames))
	t.steps = source.NewSteps(s.kernel, p, s.Options.StepSymbol)
	if !s.Options.wants("step") {
		t.steps.TurnOff()
	}
	t.tensors = source.NewTensors(s.kernel, p)
	if !s.Options.wants("tensor") {
		t.tensors.TurnOff()
	}
	t.gpu = source.NewGPU(s.kernel, p)
	if !s.Options.wants("cuda") {
		t.gpu.TurnOff()
	}
	_ = t.tensors.Close() // until it joins; there is nothing yet that could fail
	if t.unwinder, err = stack.StartUnwinder(s.kernel, s.tables, p, maps, t.stacks, t.updateProbes); err != nil {
		return nil, errors.Join(err, t.forget(), t.stacks.Close(), p.Close())
	}
	return t, nil
}

// updateProbes attaches to libraries that have been loaded meanwhile.
func (t *target) updateProbes(maps []process.Mapping) {
	t.gpu.Update(maps)
	t.tensors.Update(maps)
	t.steps.Update(maps)
}

// attach attaches all sources while the target is still waiting, so that what they see begins at one moment.
func (t *target) attach(ctx context.Context) error {
	maps, err := t.process.Maps()
	if err != nil {
		return err
	}
	if err := t.kernel.SetTarget(t.process.PID, bpf.TargetWaiting); err != nil {
		return err
	}
	t.heap.SetStatus(source.Status{Name: "heap", Off: true})
	var functions []probe.Target
	if t.session.Options.wants("heap") {
		functions = t.heap.Find(t.process, maps)
	}
	t.gpu.Update(maps)
	t.tensors.Update(maps)
	t.session.probing.join(t, functions)
	if err := t.session.checkSources(t.heap.Status(), t.tensors.Status(), t.gpu.Status()); err != nil {
		return err
	}
	t.session.tables.Wait(ctx, tablesWait)
	if err := ctx.Err(); err != nil {
		return err
	}
	return t.start()
}

// start begins to count. Mappings are read afterwards: replaying a call that they already contain changes nothing.
func (t *target) start() error {
	t.session.begin()
	t.from = t.session.probing.countsFrom(t)
	if err := t.kernel.SetTarget(t.process.PID, bpf.TargetTraced); err != nil {
		return err
	}
	if err := t.check(); err != nil {
		return err
	}
	maps, err := t.process.Maps()
	if err != nil {
		return err
	}
	t.space = addrspace.New(maps, t.process.StartBrk())
	t.pages, t.noPages = residency.Start(t.process, maps, t.session.scanner.trackerOf(t.parent))
	exited := t.process.Exited(t.stop)
	t.watcher.Go(func() { t.awaitExit(exited) })
	return nil
}

// check makes sure that what is counted from now on is the process, and the program, that was looked at. The kernel side
// notices what happens later.
func (t *target) check() error {
	stat, err := t.process.Stat()
	if err != nil || t.process.IsExiting() {
		return errGone(t.process)
	}
	if stat.Image != t.image {
		return fmt.Errorf("pid %d: %w meanwhile", t.process.PID, process.ErrExecuted)
	}
	return nil
}

// awaitExit ends the target with its process. Nothing is counted any more for whoever gets the PID next.
func (t *target) awaitExit(exited <-chan struct{}) {
	<-exited
	select {
	case <-t.stop:
	default:
		_ = t.kernel.SetTarget(t.process.PID, bpf.TargetGone) // replaces what is there
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

// err says why the target has ended: ErrExited, ErrExecuted or errAllocatorNotLoaded; nil: it has not.
func (t *target) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ending
}

// lives reports whether the process is there and still executes what is traced, as far as is known.
func (t *target) isAlive() bool { return t.err() == nil && t.process.Alive() }

// missesHeap reports whether there is an allocator by now, and was none when the target was attached to.
func (t *target) missesHeap() bool {
	if t.heap.Status().Err == nil {
		return false
	}
	maps, err := t.process.Maps()
	if err != nil {
		return false
	}
	_, err = probe.Resolve(t.process, maps)
	return err == nil
}

// noticeExecution ends the target if the kernel side has seen an execution, whose notice may be under way or lost.
func (t *target) noticeExecution() {
	var state bpf.TargetState
	err := t.kernel.Targets.Lookup(uint32(t.process.PID), &state)
	if err == nil && state == bpf.TargetGone && t.process.Alive() {
		t.end(process.ErrExecuted)
	}
}

func (t *target) sources() []source.Status {
	sources := append([]source.Status{t.heap.Status()}, t.unwinder.Status()...)
	if step := t.steps.Status(); step.Attached || step.Off || t.session.Options.StepSymbol != "" && t.steps.Settled() {
		sources = append(sources, step)
	}
	if tensor := t.tensors.Status(); tensor.Attached || tensor.Off || tensor.Err != nil || t.heap.Status().Off {
		sources = append(sources, tensor)
	}
	if t.gpu.ShouldReport(t.heap.Status().Off) {
		sources = append(sources, t.gpu.Status())
	}
	if t.noPages != nil && t.isAlive() {
		sources = append(sources, source.Status{Name: "ledger", Reason: t.noPages.Error() + source.WithRemedy(residency.Remedy(t.noPages))})
	}
	for i := range sources {
		sources[i].PID = t.process.PID
	}
	return sources
}

// detach takes the probes away.
func (t *target) detach() error {
	closes := []func() error{func() error { return t.session.probing.leaveHeap(t) }, t.steps.Close, t.tensors.Shutdown, t.gpu.Shutdown}
	return parallel(closes)
}

// retire detaches from a process and makes the kernel side forget it, while the trace goes on. The target has been halted,
// and the session does not know it any more.
func (t *target) retire(lost *losses) error {
	pid := uint32(t.process.PID)
	errs := []error{t.forget()}
	t.session.probing.forget(t)
	t.session.stepTimes.forget(pid)
	lost.add(t)
	return errors.Join(append(errs, t.close())...)
}

// halt ends what goes on in the background, of all targets at a time: each may take a tenth of a second to notice. They can
// still be looked at.
func stopWorkers(targets []*target) {
	var halting sync.WaitGroup
	for _, t := range targets {
		close(t.stop)
		halting.Go(t.unwinder.Close)
		halting.Go(t.watcher.Wait)
	}
	halting.Wait()
}

// forget detaches from the process and takes all that belongs to it out of the kernel's maps. It waits for what has been
// told of it, so that nothing of it meets a later target with its PID.
func (t *target) forget() error {
	pid := uint32(t.process.PID)
	_ = t.kernel.Targets.Delete(pid) // it may not be there, nor may the others
	errs := []error{t.detach()}
	for _, m := range []*ebpf.Map{t.kernel.Pythons, t.kernel.Mappings, t.kernel.Requests, t.kernel.GpuUsers} {
		_ = m.Delete(pid) // that of mappings waits for programs that are running
	}
	t.session.events.flush()
	t.session.events.forget(pid)
	k := t.kernel
	return errors.Join(append(errs,
		kernel.DeleteWhere(k.Live, func(key *bpf.Address, _ *bpf.Allocation) bool { return key.Tgid == pid }),
		kernel.DeleteWhere(k.Tensors, func(key *bpf.Address, _ *bpf.Allocation) bool { return key.Tgid == pid }),
		kernel.DeleteWhere(k.GpuLive, func(key *bpf.GpuAddress, _ *bpf.GpuMemory) bool { return key.Tgid == pid }),
		kernel.DeleteWhere(k.GpuMappings, func(key *bpf.GpuAddress, _ *bpf.GpuMapping) bool { return key.Tgid == pid }),
		kernel.DeleteWhere(k.GpuTotals, func(key *bpf.GpuId, _ *bpf.GpuTotal) bool { return key.Tgid == pid }),
		kernel.DeleteWhere(k.Faults, func(key *bpf.Address, _ *bpf.Fault) bool { return key.Tgid == pid }),
		kernel.DeleteWhere(k.Tallies, func(key *bpf.TallyKey, _ *bpf.Tally) bool { return key.Tgid == pid }),
		kernel.DeleteWhere(k.ReportedStacks, func(_ *uint64, tgid *uint32) bool { return *tgid == pid }),
		kernel.DeleteWhere(k.ReportedCodes, func(_ *codeID, tgid *uint32) bool { return *tgid == pid }),
	)...)
}

// close lets go of the process, once everything has been halted.
func (t *target) close() error {
	t.session.reading.Lock()
	defer t.session.reading.Unlock()
	errs := []error{t.stacks.Close()}
	if t.pages != nil {
		errs = append(errs, t.pages.Close())
	}
	return errors.Join(append(errs, t.process.Close())...)
}

// codeID is a key of the kernel's map of code objects that have been announced; only it knows what is in there.
type codeID [16]byte
