package tracer

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/source"
	"github.com/allocscope/allocscope/tracer/tree"
)

// family follows the tree of the process asked for, and decides which of it are traced.
type follower struct {
	*tree.Tree
	session *Session
	pending []Change              // not told yet
	failed  map[int]attachFailure // processes that could not be attached to, by PID
	census  tree.ProcessTable     // of all processes, at the start
	reason  string                // last told
}

// attachFailure is when a process could not be attached to for the first time; it is told once.
type attachFailure struct {
	at   time.Time
	told bool
}

// settling is how long a process may be too young to be attached to: its linker has not loaded the C library yet.
const settlingTime = 10 * time.Second

// A Change is something that happened in the tree.
type Change struct {
	// Text says what, for people.
	Text string
	// Err is why it was not possible; nil: it was.
	Err error
	// Sources of a process that is traced from now on.
	Sources []source.Status
}

// open begins with the process asked for, or with those below it that matter.
func (f *follower) open(ctx context.Context) error {
	if _, err := f.Scan(0); err != nil {
		return err
	}
	f.Sample(0)                           // what Focus goes by
	f.census, _ = tree.ReadProcessTable() // without it, nothing is said of others
	decision := tree.Decision{Trace: []int{f.session.Process.PID}}
	if f.session.Options.Children {
		decision = tree.SelectTraced(f.Candidates(f.session.IsTraced))
	}
	for _, pid := range decision.Trace {
		if err := f.attachMember(ctx, pid); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if pid == f.session.Process.PID && !errors.Is(err, process.ErrExecuted) { // it is tried again then
				return err
			}
			f.attachFailed(pid, err)
		}
	}
	f.explain(decision)
	return nil
}

// attachMember attaches to a process of the tree.
func (f *follower) attachMember(ctx context.Context, pid int) error {
	for _, m := range f.Members() {
		if m.Process.PID == pid {
			return f.session.attach(ctx, m.Process)
		}
	}
	return fmt.Errorf("pid %d: %w", pid, process.ErrNotFound)
}

// explain tells why something is traced, or not yet; once.
func (f *follower) explain(d tree.Decision) {
	if d.Reason != "" && d.Reason != f.reason {
		f.report(d.Reason)
	}
	f.reason = d.Reason
}

// follow looks what has become of the tree, attaches to processes that matter from now on, and tells what has changed.
func (f *follower) follow() []Change {
	changes, err := f.Scan(f.session.Elapsed())
	if err != nil {
		f.pending = append(f.pending, Change{Text: "children are not followed", Err: err})
	}
	for _, m := range changes.Exited {
		delete(f.failed, m.Process.PID)
		if f.session.targets.find(uint32(m.Process.PID)) != nil && len(f.Members()) > 0 {
			f.report(fmt.Sprintf("PID %d (%s) exited", m.Process.PID, m.Info.Command))
		}
	}
	for _, m := range changes.Executed {
		delete(f.failed, m.Process.PID)
		if f.session.targets.find(uint32(m.Process.PID)) != nil { // perhaps attached to since
			f.report(fmt.Sprintf("PID %d executed %s: what it was before is gone", m.Process.PID, m.Info.Command))
		}
	}
	for _, t := range f.session.targets.list() {
		t.noticeExecution()
	}
	f.attachAgain()
	f.focus()
	return f.changes()
}

// attachAgain gives up what was attached to before the linker had loaded the C library, and attaches anew.
func (f *follower) attachAgain() {
	for _, t := range f.session.targets.list() {
		if t.isAlive() && f.session.Elapsed()-t.from < settlingTime && t.missesHeap() {
			t.end(errAllocatorNotLoaded)
			f.followProcess(t.process.PID)
		}
	}
}

func (f *follower) report(text string) { f.pending = append(f.pending, Change{Text: text}) }

// focus attaches to what has come to matter.
func (f *follower) focus() {
	if !f.session.Options.Children {
		if !f.session.IsTraced(f.session.Process.PID) && f.session.Process.Alive() {
			f.followProcess(f.session.Process.PID) // it has executed another program
		}
		return
	}
	decision := tree.SelectTraced(f.Candidates(f.session.IsTraced))
	f.explain(decision)
	for _, pid := range decision.Trace {
		f.followProcess(pid)
	}
}

// followProcess attaches to a process while the trace goes on.
func (f *follower) followProcess(pid int) {
	if f.failed[pid].told {
		return
	}
	if err := f.attachMember(f.session.ctx, pid); err != nil {
		f.attachFailed(pid, err)
		return
	}
	delete(f.failed, pid)
	t := f.session.targets.find(uint32(pid))
	f.pending = append(f.pending, Change{Text: fmt.Sprintf("tracing PID %d (%s)", pid, t.process.Command()), Sources: t.sources()})
}

// attachFailed tells that a process cannot be traced, once it has had time to settle. It is tried again until then.
func (f *follower) attachFailed(pid int, err error) {
	first := f.failed[pid]
	if first.at.IsZero() {
		first.at = time.Now()
	}
	gone := errors.Is(err, ErrExited) || errors.Is(err, process.ErrNotFound) || errors.Is(err, process.ErrZombie)
	if !first.told && !gone && time.Since(first.at) > settlingTime {
		first.told = true
		f.pending = append(f.pending, Change{Text: fmt.Sprintf("PID %d is not traced", pid), Err: err})
	}
	f.failed[pid] = first
}

// outsiders are the processes outside the tree that grew most since the start of the trace, largest first.
func (f *follower) otherProcesses() []growth.Outsider {
	const most = 3
	now, err := tree.ReadProcessTable()
	if err != nil || f.census == nil {
		return nil
	}
	inside := make(map[int]bool)
	for _, m := range f.Members() {
		inside[m.Process.PID] = true
	}
	var outsiders []growth.Outsider
	for _, o := range f.census.TopGrowers(now, func(pid int) bool { return inside[pid] }, most) {
		outsiders = append(outsiders, growth.Outsider(o))
	}
	return outsiders
}

// changes are what Open has found, told once.
func (f *follower) changes() []Change {
	told := f.pending
	f.pending = nil
	return told
}
