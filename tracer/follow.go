package tracer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/container"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tree"
)

// follower follows the process tree and decides which of its processes are traced.
type follower struct {
	*tree.Tree
	session    *Session
	failed     map[int]attachFailure // processes that could not be attached to, by PID
	census     tree.Census           // of all processes of the machine
	job        tree.Job
	cpuTime    time.Duration // of the named process when tracing began
	began      time.Time
	ramFiles   process.RAMFileSystems // when tracing began
	container  *container.Reader
	containers growth.Containers
	pending    []Change         // not reported yet
	selected   growth.Selection // the last one, but for its size
	workers    int              // that were traced since they grow
	// started are the programs that have become targets since follow was called last, and untraced
	// counts those for which there was no room.
	started  []int
	untraced int
}

// An attachFailure is the moment of the first failure to attach to a process.
type attachFailure struct {
	at       time.Time
	reported bool
}

// settlingTime is how long after its start a process may be too young to be attached to: the
// dynamic linker has not loaded the C library yet.
const settlingTime = 10 * time.Second

// A Change is an event in the process tree.
type Change struct {
	growth.TreeChange
	// Err is why it was not possible; nil: it was.
	Err error
	// Sources of a process that is traced from now on.
	Sources []source.Status
}

// Follow scans the tree, attaches to processes that matter from now on, and returns the changes.
func (s *Session) Follow() []Change {
	s.following.Lock()
	defer s.following.Unlock()
	before := process.OwnCPUTime() // of all threads: several attach
	changes := s.follower.follow(s.ctx)
	hasStarted := func(c Change) bool { return len(c.Sources) > 0 }
	if s.runner != nil && slices.ContainsFunc(changes, hasStarted) {
		s.runner.AddStart(process.OwnCPUTime() - before)
	}
	return changes
}

// Changes returns the changes that Open has found.
func (s *Session) Changes() []Change {
	s.following.Lock()
	defer s.following.Unlock()
	return s.follower.takeChanges()
}

// Surroundings returns the facts about the machine around the tree.
func (s *Session) Surroundings() growth.Surroundings {
	s.following.Lock()
	defer s.following.Unlock()
	s.follower.readContainer()
	return growth.Surroundings{
		Others: s.follower.otherProcesses(), IsIdle: s.follower.isIdle(),
		RAMFiles:  s.follower.session.Process.RAMFilesSince(s.follower.ramFiles),
		Container: s.follower.containers,
	}
}

// open attaches to the process of Options.PID, or to the processes of its tree that matter. It is
// an error if the first cannot be attached to, except when it is executing another program: then
// follow tries again.
func (f *follower) open(ctx context.Context) error {
	if _, err := f.Scan(f.session.Elapsed()); err != nil {
		return err
	}
	f.Sample(f.session.Elapsed()) // which SelectTraced needs
	f.census.Update(f.session.Elapsed(), f.readContainer)
	f.job = tree.JobOf(f.session.Process)
	f.cpuTime, _ = f.session.Process.CPUTime()
	f.began, f.ramFiles = time.Now(), f.session.Process.RAMFileSystems()

	root, isLaunch := f.session.Process.PID, f.session.Options.Launch != nil
	decision := tree.Decision{Trace: []int{root}}
	if f.session.Options.Children && !isLaunch {
		decision = tree.SelectTraced(f.Candidates(f.session.IsTraced))
	}
	for _, pid := range decision.Trace {
		err := f.addMember(ctx, pid)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil && pid == root && !isLaunch && !errors.Is(err, process.ErrExecuted) {
			return err
		}
		if err != nil {
			f.attachFailed(pid, err)
		}
	}
	f.explain(decision.Selection)
	return nil
}

func (f *follower) addMember(ctx context.Context, pid int) error {
	for _, m := range f.Members() {
		if m.Process.PID == pid {
			return f.session.targets.add(ctx, m.Process)
		}
	}
	return fmt.Errorf("pid %d: %w", pid, process.ErrNotFound)
}

// addStarted attaches to a program that has just started below the shim. A program that ends before
// the next call of follow is not reported.
func (f *follower) addStarted(ctx context.Context, pid int) {
	if f.Adopt(pid, f.session.Elapsed()) == nil {
		return
	}
	delete(f.failed, pid)
	if t := f.session.targets.find(uint32(pid)); t != nil {
		t.noticeExecution()
		if t.err() == nil && len(t.sources.Heap.Producers) == 0 {
			t.end(errAllocatorNotLoaded)
		}
	}
	if f.session.IsTraced(pid) {
		return
	}
	if err := f.addMember(ctx, pid); err != nil {
		f.attachFailed(pid, err)
		if errors.Is(err, errTooManyTargets) {
			f.untraced++
		}
		return
	}
	f.started = append(f.started, pid)
}

// reportStarted reports the started programs that are still traced, and forgets the others.
func (f *follower) reportStarted() {
	for _, pid := range f.started {
		if t := f.session.targets.traced(pid); t != nil {
			f.reportTraced(t)
		}
	}
	f.started = nil
}

func (f *follower) follow(ctx context.Context) []Change {
	changes, err := f.Scan(f.session.Elapsed())
	if err != nil {
		f.report(Change{TreeChange: growth.TreeChange{Event: growth.TreeNotFollowed}, Err: err})
	}

	f.census.Update(f.session.Elapsed(), f.readContainer) // which may be gone at the end
	isNew := func(pid int) bool { return slices.Contains(f.started, pid) }
	for _, m := range changes.Exited {
		pid := m.Process.PID
		delete(f.failed, pid)
		if !isNew(pid) && f.session.targets.find(uint32(pid)) != nil && len(f.Members()) > 0 {
			f.report(changeOf(growth.TreeExited, pid, m.Info.Command))
		}
	}
	for _, m := range changes.Executed {
		pid := m.Process.PID
		delete(f.failed, pid)
		if f.session.targets.find(uint32(pid)) != nil {
			f.report(changeOf(growth.TreeExecuted, pid, m.Info.Command))
		}
	}

	f.reportStarted()

	for _, t := range f.session.targets.list() {
		t.noticeExecution()
		f.noticeStall(t)
		f.noticeThread(t)
	}
	f.addAgain(ctx)
	f.addSelected(ctx)

	if slices.ContainsFunc(changes.New, (*tree.Member).IsForked) {
		f.session.targets.sweep()
	}
	return f.takeChanges()
}

// noticeStall gives up a target whose process does not answer. It is not attached to again.
func (f *follower) noticeStall(t *target) {
	err := t.process.Stalled()
	if err == nil || t.err() != nil {
		return
	}
	t.end(err)
	pid := t.process.PID
	f.failed[pid] = attachFailure{at: time.Now(), reported: true}
	change := changeOf(growth.TreeNotTraced, pid, t.process.Command())
	change.Err = err
	f.report(change)
}

// noticeThread attaches probes again where the thread has ended by which the kernel knew the process.
func (f *follower) noticeThread(t *target) {
	if !t.isAlive() {
		return
	}
	if tid := t.process.TID(); tid != t.tid {
		t.tid = tid
		t.reattach(f.session.probing)
	}
}

// addAgain attaches again to targets that were attached to before their C library was loaded.
func (f *follower) addAgain(ctx context.Context) {
	for _, t := range f.session.targets.list() {
		isYoung := f.session.Elapsed()-t.from < settlingTime
		if isYoung && t.isAlive() && t.sources.Heap.IsMissed() {
			t.end(errAllocatorNotLoaded)
			f.addAndReport(ctx, t.process.PID)
		}
	}
}

// addSelected attaches to the processes that matter now.
func (f *follower) addSelected(ctx context.Context) {
	if !f.session.Options.Children {
		root := f.session.Process
		if !f.session.IsTraced(root.PID) && root.Alive() { // it executes another program
			f.addAndReport(ctx, root.PID)
		}
		return
	}

	if f.session.launched != nil {
		f.addUntraced(ctx)
		return
	}

	decision := tree.SelectTraced(f.Candidates(f.session.IsTraced))
	isWorker := decision.Selection.Reason == growth.SelectionAdded && decision.Selection.Role.IsWorker()
	if isWorker {
		if f.workers += len(decision.Trace); f.workers > maxAddedWorkers {
			return
		}
	}
	f.explain(decision.Selection)
	for _, pid := range decision.Trace {
		f.addAndReport(ctx, pid)
	}
}

// maxAddedWorkers bounds the workers that are traced later since they grow. Each takes CPU time to
// attach to, and where each epoch has new ones, one after the other would grow.
const maxAddedWorkers = 8

// addUntraced attaches to processes that were started below the shim, and have not reported it
// after a while: forks that allocate nothing, and static programs.
func (f *follower) addUntraced(ctx context.Context) {
	for _, m := range f.Members() {
		due := m.Info.Born + 3*settledAge // a process with a report is a target before that
		if m.IsForked() {
			due = m.Info.Born + settledAge
		}
		if f.session.Elapsed() > due && !f.session.IsTraced(m.Process.PID) {
			f.addAndReport(ctx, m.Process.PID)
		}
	}
}

// addAndReport attaches to a process and reports that or the failure.
func (f *follower) addAndReport(ctx context.Context, pid int) {
	if f.failed[pid].reported {
		return
	}
	if err := f.addMember(ctx, pid); err != nil {
		f.attachFailed(pid, err)
		return
	}

	delete(f.failed, pid)
	f.reportTraced(f.session.targets.find(uint32(pid)))
}

func (f *follower) reportTraced(t *target) {
	change := changeOf(growth.TreeTraced, t.process.PID, t.process.Command())
	change.Sources = t.statuses()
	f.report(change)
}

// attachFailed reports once that a process cannot be traced: at once where that will not change, or
// after it has had time to settle. Until then follow tries again.
func (f *follower) attachFailed(pid int, err error) {
	failure := f.failed[pid]
	if failure.at.IsZero() {
		failure.at = time.Now()
	}

	isGone := errors.Is(err, ErrExited) || errors.Is(err, process.ErrNotFound) ||
		errors.Is(err, process.ErrZombie)
	isFinal := errors.Is(err, kernel.ErrPIDNamespace)
	isSettled := isFinal || time.Since(failure.at) > settlingTime
	if !failure.reported && !isGone && isSettled {
		failure.reported = true
		change := changeOf(growth.TreeNotTraced, pid, "")
		change.Err = err
		f.report(change)
	}
	f.failed[pid] = failure
}

// explain reports why processes are traced, or are not yet, if the reason is a new one. A process
// that grows while it cannot be attached to is no news.
func (f *follower) explain(s growth.Selection) {
	unsized := s
	unsized.Private = 0
	if s.Reason != "" && unsized != f.selected {
		f.report(Change{TreeChange: growth.TreeChange{Event: growth.TreeSelected, Selection: s}})
	}
	f.selected = unsized
}

func changeOf(event growth.TreeEvent, pid int, command string) Change {
	return Change{TreeChange: growth.TreeChange{Event: event, PID: pid, Command: command}}
}

func (f *follower) report(c Change) { f.pending = append(f.pending, c) }

// takeChanges returns the changes since the last call.
func (f *follower) takeChanges() []Change {
	changes := f.pending
	f.pending = nil
	return changes
}

// readContainer reads the memory of the container.
func (f *follower) readContainer() {
	f.containers.Add(f.container.Read(f.session.Elapsed()))
}

// Bounds on the other processes that are classified, and reported of each relation.
const maxOthers, maxOthersOfRelation = 64, 3

// otherProcesses are processes outside the tree that have grown most since tracing began, at most
// three of each relation.
func (f *follower) otherProcesses() []growth.OtherProcess {
	now, err := tree.ReadProcessTable()
	if err != nil {
		return nil
	}

	inTree := make(map[int]bool)
	for _, m := range f.Members() {
		inTree[m.Process.PID] = true
	}
	var others []growth.OtherProcess
	number := make(map[growth.Relation]int)
	isOutside := func(pid int) bool { return !inTree[pid] }
	for _, o := range f.census.TopGrowers(now, f.session.Elapsed(), isOutside, maxOthers) {
		o.Relation, o.InCgroup = f.job.Relation(o.PID, now), f.container.Has(o.PID)
		if number[o.Relation]++; number[o.Relation] <= maxOthersOfRelation {
			others = append(others, o)
		}
	}
	return others
}

// maxIdleShare is the share of a core below which a process does nothing itself.
const maxIdleShare = 0.02

// isIdle reports whether the process that the user named has hardly run since tracing began.
func (f *follower) isIdle() bool {
	used, err := f.session.Process.CPUTime()
	return err == nil && (used-f.cpuTime).Seconds() < maxIdleShare*time.Since(f.began).Seconds()
}
