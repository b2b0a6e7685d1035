package tracer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
)

// errExecuted ends a target whose process has executed another program: what was traced is gone with its memory.
var errExecuted = errors.New("executed another program")

// errTooYoung ends a target that was attached to before it had an allocator.
var errTooYoung = errors.New("was attached to while it was being loaded")

// A target is one process with all sources attached.
type target struct {
	process   *process.Process
	kernel    *kernel
	session   *Session
	heap      heapSource
	stacks    *stackTable
	unwinder  *unwinder
	steps     *stepCounter
	tensors   *tensorProbe
	cuda      *cudaProbe
	space     *addrspace.Set
	occupancy *occupancy // nil where the page map cannot be read, which noLedger says
	noLedger  error
	from      time.Duration // when counting began, since the start of the trace
	joined    uint64        // the same in ns, CLOCK_MONOTONIC; the session's watch guards it
	// vanished mappings, in bytes, by all reconciliations.
	vanished int64
	// released by madvise since the pages were looked at last
	released []residency.Span
	// folded are tallies that were taken out of the kernel, by stack; foldedDevices those of what is on GPUs.
	folded        map[uint64]*sum
	foldedDevices map[deviceOrigin]*sum

	image   process.Image  // the program that was found at first
	parent  int            // its PID then
	stop    chan struct{}  // closed when nobody looks at the process any more
	watcher sync.WaitGroup // of the process's end
	mu      sync.Mutex
	ending  error // why it has ended; nil: it has not
}

// newTarget prepares what stacks need: how to walk them, and how to name them. It owns p, also where it fails.
func newTarget(s *Session, p *process.Process) (*target, error) {
	t := &target{process: p, kernel: s.kernel, session: s, folded: make(map[uint64]*sum), foldedDevices: make(map[deviceOrigin]*sum), stop: make(chan struct{})}
	t.heap.kernel, t.heap.pid = s.kernel, p.PID
	stat, err := p.Stat() // before the maps, so that an execution after them is noticed
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	t.image, t.parent = stat.Image, stat.Parent
	maps, err := p.Maps()
	if err != nil {
		return nil, errors.Join(err, p.Close())
	}
	t.stacks = newStackTable(p, newNamer(p, s.Options.NativeFrames))
	t.steps = newStepCounter(s.kernel, p, s.Options.StepSymbol)
	if !s.Options.wants("step") {
		t.steps.turnOff()
	}
	t.tensors = newTensorProbe(s.kernel, p)
	if !s.Options.wants("tensor") {
		t.tensors.turnOff()
	}
	t.cuda = newCUDAProbe(s.kernel, p)
	if !s.Options.wants("cuda") {
		t.cuda.turnOff()
	}
	_ = t.tensors.close() // until it joins; there is nothing yet that could fail
	if t.unwinder, err = startUnwinder(s.kernel, s.tables, p, maps, t.stacks, t.updateProbes); err != nil {
		return nil, errors.Join(err, t.forget(), t.stacks.close(), p.Close())
	}
	return t, nil
}

// updateProbes attaches to libraries that have been loaded meanwhile.
func (t *target) updateProbes(maps []process.Mapping) {
	t.cuda.update(maps)
	t.tensors.update(maps)
	t.steps.update(maps)
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
	t.heap.tells(Source{Name: "heap", Off: true})
	var functions []probe.Target
	if t.session.Options.wants("heap") {
		functions = t.heap.find(t.process, maps)
	}
	t.cuda.update(maps)
	t.tensors.update(maps)
	t.session.join(t, functions)
	if err := t.session.checkSources(t.heap.source(), t.tensors.source(), t.cuda.source()); err != nil {
		return err
	}
	t.session.tables.Wait(tablesWait)
	return t.start()
}

// start begins to count. Mappings are read afterwards: replaying a call that they already contain changes nothing.
func (t *target) start() error {
	t.session.begin()
	t.from = t.session.countsFrom(t)
	if err := t.kernel.setTarget(t.process.PID, bpf.KernelTargetStateTARGET_TRACED); err != nil {
		return err
	}
	if err := t.check(); err != nil {
		return err
	}
	maps, err := t.process.Maps()
	if err != nil {
		return err
	}
	t.space = addrspace.New(maps, t.process.StartBreak())
	t.occupancy, t.noLedger = attachOccupancy(t.process, maps, t.session.occupancyOf(t.parent))
	exited := t.process.Exited(t.stop)
	t.watcher.Go(func() { t.awaitExit(exited) })
	return nil
}

// check makes sure that what is counted from now on is the process, and the program, that was looked at. The kernel side
// notices what happens later.
func (t *target) check() error {
	stat, err := t.process.Stat()
	if err != nil || t.process.Ends() {
		return errGone(t.process)
	}
	if stat.Image != t.image {
		return fmt.Errorf("pid %d: %w meanwhile", t.process.PID, errExecuted)
	}
	return nil
}

// awaitExit ends the target with its process. Nothing is counted any more for whoever gets the PID next.
func (t *target) awaitExit(exited <-chan struct{}) {
	<-exited
	select {
	case <-t.stop:
	default:
		_ = t.kernel.setTarget(t.process.PID, bpf.KernelTargetStateTARGET_GONE) // replaces what is there
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

// err says why the target has ended: ErrExited, errExecuted or errTooYoung; nil: it has not.
func (t *target) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ending
}

// lives reports whether the process is there and still executes what is traced, as far as is known.
func (t *target) lives() bool { return t.err() == nil && t.process.Alive() }

// missesHeap reports whether there is an allocator by now, and was none when the target was attached to.
func (t *target) missesHeap() bool {
	if t.heap.source().err == nil {
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
	var state bpf.KernelTargetState
	err := t.kernel.Maps[bpf.KernelMapTargets].Lookup(uint32(t.process.PID), &state)
	if err == nil && state == bpf.KernelTargetStateTARGET_GONE && t.process.Alive() {
		t.end(errExecuted)
	}
}

func (t *target) sources() []Source {
	sources := append([]Source{t.heap.source()}, t.unwinder.source()...)
	if step := t.steps.source(); step.Attached || step.Off || t.session.Options.StepSymbol != "" && t.steps.isSettled() {
		sources = append(sources, step)
	}
	if tensor := t.tensors.source(); tensor.Attached || tensor.Off || tensor.err != nil || t.heap.source().Off {
		sources = append(sources, tensor)
	}
	if t.cuda.isToBeTold(t.heap.source().Off) {
		sources = append(sources, t.cuda.source())
	}
	if t.noLedger != nil && t.lives() {
		sources = append(sources, Source{Name: "ledger", Reason: t.noLedger.Error() + remedyFor(pagesRemedy(t.noLedger))})
	}
	for i := range sources {
		sources[i].PID = t.process.PID
	}
	return sources
}

// detach takes the probes away.
func (t *target) detach() error {
	closes := []func() error{func() error { return t.session.leaveHeap(t) }, t.steps.close, t.tensors.shutdown, t.cuda.shutdown}
	return atOnce(closes)
}

// retire detaches from a process and makes the kernel side forget it, while the trace goes on. The target has been halted,
// and the session does not know it any more.
func (t *target) retire(lost *losses) error {
	errs := []error{t.forget()}
	t.session.forget(t)
	lost.add(t)
	return errors.Join(append(errs, t.close())...)
}

// halt ends what goes on in the background, of all targets at a time: each may take a tenth of a second to notice. They can
// still be looked at.
func halt(targets []*target) {
	var halting sync.WaitGroup
	for _, t := range targets {
		close(t.stop)
		halting.Go(t.unwinder.close)
		halting.Go(t.watcher.Wait)
	}
	halting.Wait()
}

// forget detaches from the process and takes all that belongs to it out of the kernel's maps. It waits for what has been
// told of it, so that nothing of it meets a later target with its PID.
func (t *target) forget() error {
	pid := uint32(t.process.PID)
	_ = t.kernel.Maps[bpf.KernelMapTargets].Delete(pid) // it may not be there, nor may the others
	errs := []error{t.detach()}
	for _, name := range []string{bpf.KernelMapPythons, bpf.KernelMapMappings, bpf.KernelMapAsked, bpf.KernelMapDeviceUsers} {
		_ = t.kernel.Maps[name].Delete(pid) // that of mappings waits for programs that are running
	}
	t.session.notices.flush()
	t.session.notices.forget(pid)
	maps := t.kernel.Maps
	return errors.Join(append(errs,
		deleteFrom(maps[bpf.KernelMapLive], func(key *bpf.KernelAddress, _ *bpf.KernelAllocation) bool { return key.Tgid == pid }),
		deleteFrom(maps[bpf.KernelMapTensors], func(key *bpf.KernelAddress, _ *bpf.KernelAllocation) bool { return key.Tgid == pid }),
		deleteFrom(maps[bpf.KernelMapDeviceLive], func(key *bpf.KernelDeviceAddress, _ *bpf.KernelDeviceMemory) bool { return key.Tgid == pid }),
		deleteFrom(maps[bpf.KernelMapDeviceMappings], func(key *bpf.KernelDeviceAddress, _ *bpf.KernelDeviceMapping) bool { return key.Tgid == pid }),
		deleteFrom(maps[bpf.KernelMapCudaTotals], func(key *bpf.KernelCudaDevice, _ *bpf.KernelCudaTotal) bool { return key.Tgid == pid }),
		deleteFrom(maps[bpf.KernelMapFaults], func(key *bpf.KernelAddress, _ *bpf.KernelFault) bool { return key.Tgid == pid }),
		deleteFrom(maps[bpf.KernelMapTallies], func(key *bpf.KernelTallyKey, _ *bpf.KernelTally) bool { return key.Tgid == pid }),
		deleteFrom(maps[bpf.KernelMapSeen], func(_ *uint64, tgid *uint32) bool { return *tgid == pid }),
		deleteFrom(maps[bpf.KernelMapCodes], func(_ *codeID, tgid *uint32) bool { return *tgid == pid }),
	)...)
}

// close lets go of the process, once everything has been halted.
func (t *target) close() error {
	t.session.reading.Lock()
	defer t.session.reading.Unlock()
	errs := []error{t.stacks.close()}
	if t.occupancy != nil {
		errs = append(errs, t.occupancy.close())
	}
	return errors.Join(append(errs, t.process.Close())...)
}

// codeID is a key of the kernel's map of code objects that have been announced; only it knows what is in there.
type codeID [16]byte
