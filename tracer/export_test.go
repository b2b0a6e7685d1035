package tracer

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/process"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/unwind"
)

// AwaitTables waits until the files that are mapped now have their unwind tables.
func (s *Session) AwaitTables() { s.tables.Wait(context.Background(), time.Minute) }

// Tables says what the unwind tables hold.
func (s *Session) Tables() unwind.Stats { return s.tables.Stats() }

// Maps are the BPF maps by name.
func (s *Session) Maps() map[string]*ebpf.Map { return byName[*ebpf.Map](s.kernel.Maps) }

// Stack gives what is known of a stack ID, once all that the kernel side has told has been read.
func (s *Session) Stack(id uint64) *growth.Stack {
	s.events.flush()
	return s.targets.list()[0].stacks.Get(id)
}

// WhileNamingWaits does something while the stacks of the process asked for cannot be named.
func (s *Session) WhileNamingWaits(do func()) {
	stacks := s.targets.list()[0].stacks
	stacks.Mu.Lock()
	defer stacks.Mu.Unlock()
	do()
}

// Programs are the BPF programs by name.
func (s *Session) Programs() map[string]*ebpf.Program {
	return byName[*ebpf.Program](s.kernel.Programs)
}

// RereadCodes reads the code objects that the kernel side has told once more, from the process, and tells how many are
// still there by their fingerprints.
func (s *Session) RereadCodes() (there, told int) {
	stacks := s.targets.list()[0].stacks
	stacks.Mu.Lock()
	defer stacks.Mu.Unlock()
	codes := stacks.Namer.Codes
	for key, code := range codes.Known {
		if code == nil {
			continue
		}
		told++
		if again := codes.Read(key); again != nil && again.Function == code.Function {
			there++
		}
	}
	return there, told
}

// Attach makes a process a target, whether it is in the tree or not.
func (s *Session) Attach(pid int) error {
	p, err := process.Open(pid)
	if err != nil {
		return err
	}
	defer p.Close()
	return s.attach(s.ctx, p)
}

// AttachHeld is Attach for a process that the caller holds.
func (s *Session) AttachHeld(p *process.Process) error { return s.attach(s.ctx, p) }

// Targets is the number of targets, ended ones too.
func (s *Session) Targets() int { return len(s.targets.list()) }

// Detach gives a target up.
func (s *Session) Detach(pid int) error {
	t := s.targets.find(uint32(pid))
	stopWorkers([]*target{t})
	s.targets.drop(t)
	return t.retire(&s.retired)
}

// RetireEnded forgets the targets that have ended, as another attach would.
func (s *Session) RetireEnded() { s.retireEnded() }

// KeptCalls is the number of mapping calls that wait for a snapshot.
func (s *Session) KeptCalls() int {
	s.events.flush()
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	calls := 0
	for _, c := range s.events.calls {
		calls += len(c)
	}
	return calls
}

// AttachAround prepares a target, lets something happen, attaches it, and gives it up.
func (s *Session) AttachAround(pid int, meanwhile func()) error {
	p, err := process.Open(pid)
	if err != nil {
		return err
	}
	t, err := newTarget(s, p)
	if err != nil {
		return err
	}
	meanwhile()
	err = t.attach(s.ctx)
	stopWorkers([]*target{t})
	return errors.Join(err, t.retire(&s.retired))
}

// LimitRuns makes the number of runs that are kept of a process smaller until the end of a test.
func LimitRuns(t testing.TB, most int) {
	before := residency.MaxRuns
	residency.MaxRuns = most
	t.Cleanup(func() { residency.MaxRuns = before })
}

// LookWhole takes a snapshot as if its budget had no bound.
func (s *Session) LookWhole() (*growth.Snapshot, error) {
	s.scanner.budget = residency.Budget{PerByte: 1e-18}
	return s.Snapshot()
}

// byName returns the fields of a struct that bpf2go made by their names in the BPF object.
func byName[T any](objects any) map[string]T {
	fields := reflect.ValueOf(objects)
	named := make(map[string]T)
	for i := range fields.NumField() {
		named[fields.Type().Field(i).Tag.Get("ebpf")] = fields.Field(i).Interface().(T)
	}
	return named
}
