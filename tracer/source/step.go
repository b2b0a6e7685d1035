package source

import (
	"fmt"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// Steps is source step of one process. It counts training steps, which are the calls of one
// function since the probe was attached. Its methods may be called by several goroutines.
type Steps struct {
	library
	function probe.StepFunction
	link     link.Link       // nil while not attached
	file     probe.FileSites // of link
	named    bool            // the user has named the function
}

// maxStepFiles bounds the files of the library's name.
const maxStepFiles = 16

// NewSteps returns a source that counts the calls of LIB:SYMBOL, or with "" the backward passes of
// PyTorch. Status has the error of probe.ParseStepFunction, with which nothing is counted.
func NewSteps(k *kernel.Kernel, p *process.Process, symbol string) *Steps {
	function, err := probe.ParseStepFunction(symbol)
	reason := "no library " + growth.Printable(function.Library) + " is mapped"
	s := &Steps{
		library:  newLibrary(k, p, "step", reason, maxStepFiles),
		function: function, named: symbol != "",
	}
	s.status.Code, s.status.File = growth.SourceNotMapped, function.Library
	if err != nil {
		s.state, s.status = refused, failed("step", p, err)
	}
	return s
}

// Update attaches to the function once its library is mapped.
func (s *Steps) Update(maps []process.Mapping) {
	s.attaching.Lock()
	defer s.attaching.Unlock()

	s.check(maps, func(m process.Mapping) bool {
		if s.link != nil || !s.function.IsIn(m.Path) {
			return false
		}
		s.attach(m)
		return true
	})
}

// ShouldReport reports a program without steps only if the user has named the function.
func (s *Steps) ShouldReport(bool) bool { return s.Status().Attached || s.is(off) || s.named }

// Pending is as in Library.
func (s *Steps) Pending() bool { return s.is(waiting) && s.Status().Err == nil }

// Sweep does nothing: the processes that a trainer forks make no steps.
func (s *Steps) Sweep() error { return nil }

// attach attaches to the function in a mapped file, or reports why it cannot.
func (s *Steps) attach(m process.Mapping) {
	l, file, err := s.tryAttach(m)
	s.mu.Lock()
	defer s.mu.Unlock()

	if err != nil {
		s.status = failed("step", s.process, err)
		return
	}

	s.link, s.file, s.state = l, file, attached
	s.status = Status{Name: "step", Attached: true, Details: details(file)}
}

func (s *Steps) tryAttach(m process.Mapping) (link.Link, probe.FileSites, error) {
	file, err := s.function.Resolve(s.process, m)
	if err != nil {
		return nil, file, err
	}

	if err := s.kernel.Steps.Put(uint32(s.process.PID), bpf.StepCount{}); err != nil {
		return nil, file, fmt.Errorf("count steps of pid %d: %w", s.process.PID, err)
	}

	l, err := s.attachTo(file)
	return l, file, err
}

func (s *Steps) attachTo(file probe.FileSites) (link.Link, error) {
	return attachIn(s.kernel, s.process, func(w kernel.Way) (link.Link, error) {
		return probe.AttachStep(file, w.Programs, w.TID)
	})
}

// reattach attaches the probe again. Where it cannot, no more steps are counted.
func (s *Steps) reattach() {
	s.attaching.Lock()
	defer s.attaching.Unlock()
	if s.link == nil {
		return
	}
	_ = probe.Close([]link.Link{s.link}) // else it is detached when allocscope exits
	s.link, _ = s.attachTo(s.file)
}

// Count returns the calls since the probe was attached. It is growth.Unknown before that and after
// Close.
func (s *Steps) Count() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()

	var steps bpf.StepCount
	if s.state != attached || s.kernel.Steps.Lookup(uint32(s.process.PID), &steps) != nil {
		return growth.Unknown
	}
	return int64(steps.Calls)
}

// Close is as in Library.
func (s *Steps) Close() error {
	s.attaching.Lock()
	defer s.attaching.Unlock()

	s.enter(closed)
	_ = s.kernel.Steps.Delete(uint32(s.process.PID)) // fails if nothing was attached

	if s.link == nil {
		return nil
	}
	err := probe.Close([]link.Link{s.link})
	s.link = nil
	return err
}
