package tracer

import (
	"errors"
	"fmt"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/tree"
)

// family follows the tree of the process asked for, and decides which of it are traced.
type family struct {
	*tree.Tree
	pending []Change             // not told yet
	failed  map[int]firstFailure // processes that could not be attached to, by PID
	census  tree.Census          // of all processes, at the start
	reason  string               // last told
}

// firstFailure is when a process could not be attached to for the first time; it is told once.
type firstFailure struct {
	at   time.Time
	told bool
}

// settling is how long a process may be too young to be attached to: its linker has not loaded the C library yet.
const settling = 10 * time.Second

// A Change is something that happened in the tree.
type Change struct {
	// Text says what, for people.
	Text string
	// Err is why it was not possible; nil: it was.
	Err error
	// Sources of a process that is traced from now on.
	Sources []Source
}

// openTargets begins with the process asked for, or with those below it that matter.
func (s *Session) openTargets() error {
	s.family = &family{Tree: tree.New(s.Process, s.Options.Children), failed: make(map[int]firstFailure)}
	if _, err := s.family.Scan(0); err != nil {
		return err
	}
	s.family.Sample(0)                     // what Focus goes by
	s.family.census, _ = tree.TakeCensus() // without it, nothing is said of others
	decision := tree.Decision{Trace: []int{s.Process.PID}}
	if s.Options.Children {
		decision = tree.Focus(s.family.Candidates(s.IsTraced))
	}
	for _, pid := range decision.Trace {
		if err := s.attachMember(pid); err != nil {
			if pid == s.Process.PID && !errors.Is(err, errExecuted) { // it is tried again then
				return err
			}
			s.attachFailed(pid, err)
		}
	}
	s.family.explain(decision)
	return nil
}

// attachMember attaches to a process of the tree.
func (s *Session) attachMember(pid int) error {
	for _, m := range s.family.Members() {
		if m.Process.PID == pid {
			return s.attach(m.Process)
		}
	}
	return fmt.Errorf("pid %d: %w", pid, process.ErrNotFound)
}

// explain tells why something is traced, or not yet; once.
func (f *family) explain(d tree.Decision) {
	if d.Reason != "" && d.Reason != f.reason {
		f.tell(d.Reason)
	}
	f.reason = d.Reason
}

// Follow looks what has become of the tree, attaches to processes that matter from now on, and tells what has changed.
func (s *Session) Follow() []Change {
	f := s.family
	changes, err := f.Scan(s.Elapsed())
	if err != nil {
		f.pending = append(f.pending, Change{Text: "children are not followed", Err: err})
	}
	for _, m := range changes.Gone {
		delete(f.failed, m.Process.PID)
		if s.targets.find(uint32(m.Process.PID)) != nil && len(f.Members()) > 0 {
			f.tell(fmt.Sprintf("PID %d (%s) exited", m.Process.PID, m.Facts.Command))
		}
	}
	for _, m := range changes.Executed {
		delete(f.failed, m.Process.PID)
		if s.targets.find(uint32(m.Process.PID)) != nil { // perhaps attached to since
			f.tell(fmt.Sprintf("PID %d executed %s: what it was before is gone", m.Process.PID, m.Facts.Command))
		}
	}
	for _, t := range s.targets.list() {
		t.noticeExecution()
	}
	s.attachAgain()
	s.focus()
	return s.Changes()
}

// attachAgain gives up what was attached to before the linker had loaded the C library, and attaches anew.
func (s *Session) attachAgain() {
	for _, t := range s.targets.list() {
		if t.lives() && s.Elapsed()-t.from < settling && t.missesHeap() {
			t.end(errTooYoung)
			s.follow(t.process.PID)
		}
	}
}

func (f *family) tell(text string) { f.pending = append(f.pending, Change{Text: text}) }

// IsTraced tells whether a process is traced now.
func (s *Session) IsTraced(pid int) bool {
	t := s.targets.find(uint32(pid))
	return t != nil && t.err() == nil
}

// focus attaches to what has come to matter.
func (s *Session) focus() {
	if !s.Options.Children {
		if !s.IsTraced(s.Process.PID) && s.Process.Alive() {
			s.follow(s.Process.PID) // it has executed another program
		}
		return
	}
	decision := tree.Focus(s.family.Candidates(s.IsTraced))
	s.family.explain(decision)
	for _, pid := range decision.Trace {
		s.follow(pid)
	}
}

// follow attaches to a process while the trace goes on.
func (s *Session) follow(pid int) {
	if s.family.failed[pid].told {
		return
	}
	if err := s.attachMember(pid); err != nil {
		s.attachFailed(pid, err)
		return
	}
	delete(s.family.failed, pid)
	t := s.targets.find(uint32(pid))
	s.family.pending = append(s.family.pending, Change{Text: fmt.Sprintf("tracing PID %d (%s)", pid, t.process.Command()), Sources: t.sources()})
}

// attachFailed tells that a process cannot be traced, once it has had time to settle. It is tried again until then.
func (s *Session) attachFailed(pid int, err error) {
	f := s.family.failed[pid]
	if f.at.IsZero() {
		f.at = time.Now()
	}
	gone := errors.Is(err, ErrExited) || errors.Is(err, process.ErrNotFound) || errors.Is(err, process.ErrZombie)
	if !f.told && !gone && time.Since(f.at) > settling {
		f.told = true
		s.family.pending = append(s.family.pending, Change{Text: fmt.Sprintf("PID %d is not traced", pid), Err: err})
	}
	s.family.failed[pid] = f
}

// Sample reads the state of all processes of the tree and of the memory around them. What could not be read is
// growth.Unknown.
func (s *Session) Sample() growth.Moment {
	s.notices.flush() // those that can wait do not wake anybody
	moment := s.family.Sample(s.Elapsed())
	moment.Price = s.price()
	tensors, devices := tensorTotals(s.kernel, s.targets.list()), s.gpus.sample()
	for i, m := range s.family.Members() {
		member := growth.Member{Process: m.Facts}
		moment.Processes[i].Steps = growth.Unknown
		if t := s.targets.find(uint32(m.Facts.PID)); t != nil && t.err() == nil {
			member.Traced, member.From = true, t.from
			moment.Processes[i].Steps = t.steps.count()
			setTensors(&moment.Processes[i].Sample, tensors, m.Facts.PID)
			devices.set(&moment.Processes[i].Sample, m.Facts.PID)
			if (t.tensors.waits() || t.cuda.waits()) && !s.mapping.Attached { // nobody tells of libraries that are loaded
				t.unwinder.refresh()
			}
		}
		moment.Members = append(moment.Members, member)
	}
	moment.GPUs = s.gpus.nvml.samples(s.gpus.initialPIDs())
	return moment
}

// Outsiders are the processes outside the tree that grew most since the start of the trace, largest first.
func (s *Session) Outsiders() []growth.Outsider {
	const most = 3
	now, err := tree.TakeCensus()
	if err != nil || s.family.census == nil {
		return nil
	}
	inside := make(map[int]bool)
	for _, m := range s.family.Members() {
		inside[m.Process.PID] = true
	}
	var outsiders []growth.Outsider
	for _, o := range s.family.census.Grown(now, func(pid int) bool { return inside[pid] }, most) {
		outsiders = append(outsiders, growth.Outsider(o))
	}
	return outsiders
}

// Changes are what Open has found, told once.
func (s *Session) Changes() []Change {
	told := s.family.pending
	s.family.pending = nil
	return told
}

// Stopped tells whether a traced process is stopped, by a signal or a debugger.
func (s *Session) Stopped(pid int) bool {
	t := s.targets.find(uint32(pid))
	if t == nil {
		return false
	}
	status, err := t.process.Status()
	return err == nil && (status.State == 'T' || status.State == 't')
}
