package tracer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
)

// errAllocatorNotLoaded ends a target that was attached to before its allocator was loaded.
var errAllocatorNotLoaded = errors.New("attached to before its C library was loaded")

// errNoShim is why a process that the command has started has no source heap.
var errNoShim = errors.New("the shim does not see its allocations, or was not loaded")

// A target is a traced process with its sources.
type target struct {
	process    *process.Process
	kernel     *kernel.Kernel
	probing    *probing
	heap       source.Heap
	allocators probe.AllocatorCode
	steps      *source.Steps
	tensors    *source.Tensors
	gpu        *source.GPU
	stacks     *stack.Table
	unwinder   *stack.Unwinder
	space      *addrspace.IntervalSet
	breaks     addrspace.Breaks
	pages      *residency.Tracker // nil: the page map cannot be read, for the reason pagesErr
	pagesErr   error

	fromStart   bool          // it is traced from its first allocation on
	from        time.Duration // between the start of the trace and the start of this target
	tracedSince uint64        // the same moment, ns, CLOCK_MONOTONIC; probing.mu guards it
	vanished    int64         // bytes of the mappings that were gone without a call
	// folded are the tallies that foldTallies has taken out of the kernel, by stack; foldedGPU are
	// the tallies of GPU memory.
	folded    map[uint64]*estimate.StackTotals
	foldedGPU map[gpu.Key]*estimate.StackTotals

	image   process.Image  // the program when it was first read
	parent  int            // the parent's PID then
	stop    chan struct{}  // closed to stop the target's goroutines
	watcher sync.WaitGroup // awaitExit, detach where the process lives on, and samples of GPU totals

	outOfMemory atomic.Bool // the kernel has killed the process for want of memory

	mu     sync.Mutex // guards ending, and is held while stop is closed
	ending error      // the reason of the end; nil: the target is traced
}

// newTarget prepares the walking and the naming of stacks. It takes over p, also with an error.
func newTarget(s *Session, p *process.Process) (*target, error) {
	t := &target{
		process: p, kernel: s.kernel, probing: s.probing, stop: make(chan struct{}),
		folded:    make(map[uint64]*estimate.StackTotals),
		foldedGPU: make(map[gpu.Key]*estimate.StackTotals),
	}
	t.heap.Kernel, t.heap.Process = s.kernel, p
	if s.launched != nil {
		t.heap.Shim = s.launched.Shim
	}

	stat, err := p.Stat() // before the maps, so that check notices an execve in between
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	t.image, t.parent = stat.Image, stat.Parent
	maps, err := p.Maps()
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	namer := stack.NewNamer(p, s.debugFiles, s.Options.NativeFrames)
	t.stacks = stack.NewTable(p, namer, &s.named)

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
	_ = t.tensors.Close() // closed until probing.join; nothing is attached that could fail

	t.unwinder, err = stack.StartUnwinder(s.kernel, s.tables, p, maps, t.stacks, t.updateProbes)
	if err != nil {
		err = errors.Join(err, t.leave(s.events), s.kernel.DeleteProcesses(uint32(p.PID)))
		return nil, errors.Join(err, t.stacks.Close(), p.Close())
	}
	return t, nil
}

// updateProbes attaches to libraries that have been loaded since.
func (t *target) updateProbes(maps []process.Mapping) {
	t.gpu.Update(maps)
	t.tensors.Update(maps)
	t.steps.Update(maps)
}

// attachTarget attaches all sources while the target is still waiting, so that all of them start at
// once.
func (s *Session) attachTarget(ctx context.Context, t *target) error {
	maps, err := t.process.Maps()
	if err != nil {
		return err
	}
	if err := t.kernel.AddUser(t.process.PID); err != nil {
		return err
	}
	if err := t.kernel.SetTarget(t.process.PID, bpf.TargetWaiting); err != nil {
		return err
	}

	t.heap.SetStatus(source.Status{Name: "heap", Off: true})
	var functions []probe.FileSites
	if s.Options.wants("heap") {
		functions = t.heap.Find(maps)
		t.allocators = probe.CodeOf(functions, t.heap.Producers)
		if s.launched != nil && len(t.heap.Producers) == 0 {
			t.heap.GiveUp(errNoShim)
		}
	}
	if len(t.heap.Producers) > 0 || s.launched != nil { // which see tensors as well
		functions = nil
		t.tensors.Stop()
	}
	defer context.AfterFunc(ctx, func() {
		t.gpu.Stop()
		t.tensors.Stop()
		t.steps.Stop()
	})()
	t.gpu.Update(maps)
	t.tensors.Update(maps)
	if err := ctx.Err(); err != nil {
		return err
	}
	s.probing.join(t, functions)

	err = s.sources.check(t.heap.Status(), t.tensors.Status(), t.gpu.Status())
	if err != nil {
		return err
	}
	s.tables.Wait(ctx, tablesTimeout)
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.startTarget(t)
}

// startTarget starts tracing. It reads the mappings afterwards: to replay a call that they contain
// already changes nothing.
func (s *Session) startTarget(t *target) error {
	s.start()
	t.from = s.probing.startTarget(t)
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
	if t.breaks.IsEmpty() {
		t.breaks.Add(0, t.space.Break(), stack.LostID)
	}
	parentPages := s.scanner.trackerOf(t.parent)
	t.pages, t.pagesErr = residency.Start(t.process, maps, parentPages)

	exited := t.process.Exited(t.stop)
	t.watcher.Go(func() { t.awaitExit(exited, s.endWhenDone) })
	return nil
}

// check returns an error if the process has exited or executed another program since newTarget.
// Later changes are noticed by the BPF programs.
func (t *target) check() error {
	stat, err := t.process.Stat()
	if err != nil || t.process.IsExiting() {
		return exitedError(t.process)
	}
	if stat.Image != t.image {
		return fmt.Errorf("pid %d: %w meanwhile", t.process.PID, process.ErrExecuted)
	}
	return nil
}

// awaitExit ends the target with its process, so that the next process with its PID is not traced.
func (t *target) awaitExit(exited <-chan struct{}, ended func()) {
	<-exited
	select {
	case <-t.stop:
	default:
		_ = t.kernel.SetTarget(t.process.PID, bpf.TargetGone) // the entry is there
		t.end(ErrExited)
		ended()
	}
}

// end ends the target for a reason, unless it has ended. If its process lives on, the probes are
// detached at once. They belong to the process, not to the program: they would be in the C library
// of the next one, too, and nobody counts their hits there.
func (t *target) end(why error) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.ending != nil {
		return
	}
	t.ending = why
	select {
	case <-t.stop: // retire or Close detaches
	default:
		if !errors.Is(why, ErrExited) {
			t.watcher.Go(func() { _ = t.detach() }) // retire tries again if it fails
		}
	}
}

// err returns the reason why the target has ended: ErrExited, process.ErrExecuted or
// errAllocatorNotLoaded; nil: it has not.
func (t *target) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ending
}

// isAlive reports whether the process is alive and, as far as is known, still executes the traced
// program.
func (t *target) isAlive() bool { return t.err() == nil && t.process.Alive() }

// missesHeap reports whether the process has an allocator now, and had none when it was attached
// to.
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

// noticeExecution ends the target if the BPF programs have seen an execve. Its event may still be
// in the ring buffer, or lost.
func (t *target) noticeExecution() {
	var state bpf.TargetState
	err := t.kernel.Targets.Lookup(uint32(t.process.PID), &state)
	if err == nil && state == bpf.TargetGone && t.process.Alive() {
		t.end(process.ErrExecuted)
	}
}

// detach detaches the target's probes.
func (t *target) detach() error {
	leaveHeap := func() error { return t.probing.leaveHeap(t) }
	return parallel([]func() error{leaveHeap, t.steps.Close, t.tensors.Shutdown, t.gpu.Shutdown})
}

// retire detaches from processes and deletes the kernel's data on them, while the trace goes on.
// The targets' goroutines have been stopped, and they are no longer in the session's set.
func (s *Session) retire(targets ...*target) error {
	var errs []error
	var pids []uint32
	for _, t := range targets {
		errs = append(errs, t.leave(s.events))
		pids = append(pids, uint32(t.process.PID))
	}
	errs = append(errs, s.kernel.DeleteProcesses(pids...))

	for _, t := range targets {
		s.probing.forget(t)
		s.stepTimes.Forget(uint32(t.process.PID))
		s.retired.add(t)
		errs = append(errs, t.close(&s.reading))
	}
	return errors.Join(errs...)
}

// stopWorkers stops the goroutines of all targets at once: each may take 0.1 s. The targets can
// still be read.
func stopWorkers(targets []*target) {
	var stopping sync.WaitGroup
	for _, t := range targets {
		t.mu.Lock()
		close(t.stop)
		t.mu.Unlock()
		stopping.Go(t.unwinder.Close)
		stopping.Go(t.watcher.Wait)
	}
	stopping.Wait()
}

// leave detaches from the process and deletes the entries that user space has set in the kernel for
// it. It waits for the events of the process, so that a later target with its PID gets none of
// them.
func (t *target) leave(events *eventReader) error {
	pid, k := uint32(t.process.PID), t.kernel
	_ = k.Targets.Delete(pid) // it may have no entry, here and below
	err := t.detach()
	for _, m := range []*ebpf.Map{k.Pythons, k.Mappings, k.Requests, k.GpuUsers} {
		_ = m.Delete(pid) // Mappings waits for programs that are running
	}
	_ = k.Requests.Delete(pid | bpf.RequestNewCode)

	events.Flush()
	events.journal.Forget(pid)
	return err
}

// close closes the process, which others read under the lock. The target's goroutines have been
// stopped.
func (t *target) close(reading *sync.Mutex) error {
	reading.Lock()
	defer reading.Unlock()

	errs := []error{t.stacks.Close()}
	if t.pages != nil {
		errs = append(errs, t.pages.Close())
	}
	return errors.Join(append(errs, t.process.Close())...)
}

// A targetSet is the targets of a session in the order in which they were attached to. Its methods
// may be called concurrently.
type targetSet struct {
	mu      sync.Mutex
	targets []*target
}

// find returns the target with a PID, or nil.
func (s *targetSet) find(pid uint32) *target {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, t := range s.targets {
		if uint32(t.process.PID) == pid {
			return t
		}
	}
	return nil
}

// traced returns the target that traces a process; nil: there is none, or it has ended.
func (s *targetSet) traced(pid int) *target {
	if t := s.find(uint32(pid)); t != nil && t.err() == nil {
		return t
	}
	return nil
}

// list returns a copy.
func (s *targetSet) list() []*target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.targets)
}

func (s *targetSet) add(t *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = append(s.targets, t)
}

func (s *targetSet) drop(t *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = slices.DeleteFunc(s.targets, func(other *target) bool { return other == t })
}
