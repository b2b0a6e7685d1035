package tracer

import (
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/source"
)

// OpenTensors and CloseTensors attach to and detach from the functions for tensors of the first target.
func (s *Session) OpenTensors() error  { return s.targets.list()[0].tensors.Open() }
func (s *Session) CloseTensors() error { return s.targets.list()[0].tensors.Close() }

// AttachTensors attaches the probes on tensors in all targets, or detaches them, as the governor would.
func (s *Session) AttachTensors(attach bool) error { return s.probing.AttachTensors(attach) }

// SetIntervals changes those of both sources, as the governor would.
func (s *Session) SetIntervals(heap, tensor uint64) error {
	return s.probing.SetIntervals(heap, tensor)
}

// TensorLinks are those of the first target.
func (s *Session) TensorLinks() []link.Link {
	t := s.targets.list()[0].tensors
	t.Attaching.Lock()
	defer t.Attaching.Unlock()
	return t.Links
}

// HeldTensors is a probe that waits for open, and what makes it look at the mappings.
func HeldTensors(s *Session) (probe TensorProbe, err error) {
	p := TensorProbe{source.NewTensors(s.kernel, s.Process), s}
	return p, p.Close()
}

// A TensorProbe is one for tests, which call Update where the unwinder does.
type TensorProbe struct {
	*source.Tensors
	session *Session
}

// Update lets it look at the mappings again.
func (p TensorProbe) Update() error {
	maps, err := p.session.Process.Maps()
	if err == nil {
		p.Tensors.Update(maps)
	}
	return err
}

func (p TensorProbe) Source() source.Status { return p.Status() }
func (p TensorProbe) Watches() bool         { return p.Active() }

// TensorSource is what the first target says of its tensors, told or not.
func (s *Session) TensorSource() source.Status { return s.targets.list()[0].tensors.Status() }

// Counted is what the kernel side has counted.
func (s *Session) Counted(what bpf.Counter) uint64 {
	values, err := kernel.ReadCounters(s.kernel.Counters)
	if err != nil {
		return 0
	}
	return values[what]
}

// TensorTotals reads them.
func (s *Session) TensorTotals() { tensorTotals(s.kernel, s.targets.list()) }
