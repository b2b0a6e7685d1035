package tracer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/addrspace"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/gpu"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/stack"
	"github.com/allocscope/allocscope/tracer/symbol"
)

// lifecycle makes processes targets and retires them. The package comment has the picture; each
// transition is a function of its name here. A transition takes the type of the state that it
// leaves, so that none can be skipped.
type lifecycle struct {
	targetSet
	session    *Session
	debugFiles *symbol.DebugFiles
	named      stack.Memory
	retired    losses // of the targets that have been retired
}

type (
	// A preparedTarget has its stacks walked and named. No source is attached.
	preparedTarget struct{ *target }
	// An attachedTarget has its sources attached. The BPF programs ignore it still.
	attachedTarget struct{ *target }
	// stoppedTargets have no goroutines any more, and can be read.
	stoppedTargets []*target
)

// errAllocatorNotLoaded ends a target that was attached to before its allocator was loaded.
var errAllocatorNotLoaded = errors.New("attached to before its C library was loaded")

var errTooManyTargets = errors.New("limit of traced processes reached")

// add makes a process a target. The caller keeps held, and the target opens the process once more.
// If the process exits meanwhile, the error is ErrExited, whatever has failed.
func (l *lifecycle) add(ctx context.Context, held *process.Process) error {
	if !held.Alive() { // nothing takes the place of the target that it had
		return exitedError(held)
	}

	isLaunch := l.session.launched != nil
	if t := l.find(uint32(held.PID)); isLaunch && t != nil { // before an execve
		l.retireAll([]*target{t})
	}
	if !isLaunch || len(l.list()) >= l.max() {
		l.retireEnded(0)
	}

	err := l.addNew(ctx, held)
	if err != nil && held.IsExiting() {
		return exitedError(held)
	}
	return err
}

// addNew makes all transitions from a process to a traced target. Where one fails, the target is
// retired.
func (l *lifecycle) addNew(ctx context.Context, held *process.Process) error {
	if limit := l.max(); len(l.list()) >= limit {
		return fmt.Errorf("pid %d: %w (%d)", held.PID, errTooManyTargets, limit)
	}

	p, err := process.Open(held.PID)
	if err != nil {
		return err
	}
	process.KeepMemory(p)
	err = kernel.CheckReachable(p.PID)
	if !held.Alive() { // and another process may have its PID
		err = exitedError(held)
	}
	if err != nil {
		return errors.Join(err, p.Close())
	}

	prepared, err := l.prepare(p)
	if err != nil {
		return err
	}
	l.insert(prepared.target)
	attached, err := l.attach(ctx, prepared)
	if err == nil {
		err = l.trace(attached)
	}
	if err == nil {
		return nil
	}

	stopped := stop(prepared.target)
	l.drop(prepared.target)
	return errors.Join(err, l.retire(stopped))
}

func (l *lifecycle) max() int { return int(l.session.kernel.Targets.MaxEntries()) }

func exitedError(p *process.Process) error { return fmt.Errorf("pid %d: %w", p.PID, ErrExited) }

// prepare has the stacks of a process walked and named. It takes over p, also with an error.
func (l *lifecycle) prepare(p *process.Process) (preparedTarget, error) {
	s := l.session
	none := preparedTarget{}
	t := &target{
		process: p, kernel: s.kernel, stop: make(chan struct{}),
		folded:    make(map[uint64]*estimate.StackTotals),
		foldedGPU: make(map[gpu.Key]*estimate.StackTotals),
	}

	stat, err := p.Stat() // before the maps, so that check notices an execve in between
	if err != nil {
		return none, errors.Join(err, p.Close())
	}
	t.image, t.parent = stat.Image, stat.Parent
	maps, err := p.Maps()
	if err != nil {
		return none, errors.Join(err, p.Close())
	}

	t.stacks = stack.NewTable(p,
		stack.NewNamer(p, l.debugFiles, s.Options.NativeFrames, s.own), &l.named, s.own)
	t.sources = source.NewLibraries(source.LibraryOptions{
		Kernel: s.kernel, Process: p, Shim: s.probing.shim,
		StepSymbol: s.Options.StepSymbol, Wants: s.Options.wants,
	})
	t.unwinder, err = stack.StartUnwinder(
		s.kernel, s.tables, p, maps, t.stacks, t.sources.Update, s.own)
	if err != nil {
		err = errors.Join(err, t.leave(s.events), source.Forget(s.kernel, uint32(p.PID)))
		return none, errors.Join(err, t.stacks.Close(), p.Close())
	}
	return preparedTarget{t}, nil
}

// attach attaches all sources while the BPF programs ignore the process, so that all of them start
// at once.
func (l *lifecycle) attach(ctx context.Context, t preparedTarget) (attachedTarget, error) {
	none := attachedTarget{}
	maps, err := t.process.Maps()
	if err != nil {
		return none, err
	}
	if err := t.kernel.AddUser(t.process.PID); err != nil {
		return none, err
	}
	if err := t.kernel.SetTarget(t.process.PID, bpf.TargetWaiting); err != nil {
		return none, err
	}

	t.tid = t.process.TID()
	defer context.AfterFunc(ctx, t.sources.Stop)()
	t.sources.Attach(maps)
	if err := ctx.Err(); err != nil {
		return none, err
	}
	l.session.probing.openIn(t.target)

	err = checkSources(t.sources.Statuses(), l.session.system.Statuses())
	if err != nil {
		return none, err
	}
	l.session.tables.Wait(ctx, tablesTimeout)
	return attachedTarget(t), ctx.Err()
}

// trace starts tracing. It reads the mappings afterwards: to replay a call that they contain
// already changes nothing.
func (l *lifecycle) trace(t attachedTarget) error {
	s := l.session
	s.startClock()
	t.from = s.probing.noteStart(t.target)
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
	t.pages, t.pagesErr = residency.Start(
		t.process, maps, parentPages, l.session.own)

	exited := t.process.Exited(t.stop)
	t.watcher.Go(func() { t.awaitExit(exited, l.endWhenDone) })
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
			t.watcher.Go(func() { _ = t.sources.Close() }) // retire tries again if it fails
		}
	}
}

// endWhenDone ends the trace if the process of Options.PID and all targets have ended.
func (l *lifecycle) endWhenDone() {
	for _, t := range l.list() {
		if t.err() == nil {
			return
		}
	}
	if l.session.Process.Alive() {
		return
	}

	l.session.endOnce.Do(func() { close(l.session.ended) })
}

// stop stops the goroutines of all targets at once: each may take 0.1 s.
func stop(targets ...*target) stoppedTargets {
	var stopping sync.WaitGroup
	for _, t := range targets {
		t.mu.Lock()
		close(t.stop)
		t.mu.Unlock()
		stopping.Go(t.unwinder.Close)
		stopping.Go(t.watcher.Wait)
	}
	stopping.Wait()
	return targets
}

// retire detaches from processes and deletes the kernel's data on them, while the trace goes on.
// They are no longer in the set.
func (l *lifecycle) retire(stopped stoppedTargets) error {
	var leaving []func() error // the kernel has each wait for some 10 ms
	var pids []uint32
	for _, t := range stopped {
		leaving = append(leaving, func() error { return t.leave(l.session.events) })
		pids = append(pids, uint32(t.process.PID))
	}
	errs := []error{source.InParallel(leaving), source.Forget(l.session.kernel, pids...)}

	for _, t := range stopped {
		l.session.probing.forget(t)
		l.session.stepTimes.Forget(uint32(t.process.PID))
		l.retired.add(t)
	}
	return errors.Join(append(errs, stopped.close(&l.session.reading))...)
}

// leave detaches from the process and deletes the entries that user space has set in the kernel for
// it. It waits for the events of the process, so that a later target with its PID gets none of
// them.
func (t *target) leave(events *eventReader) error {
	pid, k := uint32(t.process.PID), t.kernel
	_ = k.Targets.Delete(pid) // it may have no entry, here and below
	err := t.sources.Close()
	for _, m := range []*ebpf.Map{k.Pythons, k.Mappings, k.Requests, k.GpuUsers} {
		_ = m.Delete(pid) // Mappings waits for programs that are running
	}
	_ = k.Requests.Delete(pid | bpf.RequestNewCode)

	events.Flush()
	events.journal.Forget(pid)
	return err
}

// close closes the processes, which others read under the lock.
func (s stoppedTargets) close(reading *sync.Mutex) error {
	reading.Lock()
	defer reading.Unlock()

	var errs []error
	for _, t := range s {
		errs = append(errs, t.stacks.Close())
		if t.pages != nil {
			errs = append(errs, t.pages.Close())
		}
		errs = append(errs, t.process.Close())
	}
	return errors.Join(errs...)
}

// retireEnded drops the targets that have ended, to make room, if they are more than most. It keeps
// half as many: the ones with the most objects in the last snapshot. Snapshots include these.
func (l *lifecycle) retireEnded(most int) {
	isTraced := func(t *target) bool { return t.err() == nil }
	ended := slices.DeleteFunc(l.list(), isTraced)
	objects := func(t *target) int { return len(l.session.objects[uint32(t.process.PID)]) }
	byObjects := func(a, b *target) int { return cmp.Compare(objects(a), objects(b)) }
	slices.SortStableFunc(ended, byObjects)
	if len(ended) > most {
		l.retireAll(ended[:len(ended)-most/2])
	}
}

// retireAll drops targets that have ended.
func (l *lifecycle) retireAll(ended []*target) {
	if len(ended) == 0 {
		return
	}
	stopped := stop(ended...)
	for _, t := range ended {
		l.drop(t)
	}
	_ = l.retire(stopped) // probes that cannot be detached have gone with their process
}

// tablesTimeout bounds the wait for the unwind tables of a process before tracing starts. The
// tables of a C program are ready at once. The tables of a large one are built while it is being
// traced.
const tablesTimeout = 200 * time.Millisecond
