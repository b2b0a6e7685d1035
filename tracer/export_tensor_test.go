package tracer

import (
	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
)

// OpenTensors and CloseTensors attach to and detach from the functions for tensors of the first target.
func (s *Session) OpenTensors() error  { return s.targets.list()[0].tensors.open() }
func (s *Session) CloseTensors() error { return s.targets.list()[0].tensors.close() }

// AttachTensors attaches the probes on tensors in all targets, or detaches them, as the governor would.
func (s *Session) AttachTensors(attach bool) error { return s.watch.AttachTensors(attach) }

// SetIntervals changes those of both sources, as the governor would.
func (s *Session) SetIntervals(heap, tensor uint64) error { return s.watch.SetIntervals(heap, tensor) }

// TensorLinks are those of the first target.
func (s *Session) TensorLinks() []link.Link {
	t := s.targets.list()[0].tensors
	t.attaching.Lock()
	defer t.attaching.Unlock()
	return t.links
}

// HeldTensors is a probe that waits for open, and what makes it look at the mappings.
func HeldTensors(s *Session) (probe TensorProbe, err error) {
	p := TensorProbe{newTensorProbe(s.kernel, s.Process), s}
	return p, p.close()
}

// A TensorProbe is one for tests, which call Update where the unwinder does.
type TensorProbe struct {
	*tensorProbe
	session *Session
}

// Update lets it look at the mappings again.
func (p TensorProbe) Update() error {
	maps, err := p.session.Process.Maps()
	if err == nil {
		p.update(maps)
	}
	return err
}

func (p TensorProbe) Open() error     { return p.open() }
func (p TensorProbe) Shutdown() error { return p.shutdown() }
func (p TensorProbe) Source() Source  { return p.source() }
func (p TensorProbe) Watches() bool   { return p.watches() }

// TensorSource is what the first target says of its tensors, told or not.
func (s *Session) TensorSource() Source { return s.targets.list()[0].tensors.source() }

// Counted is what the kernel side has counted.
func (s *Session) Counted(what bpf.KernelCounter) uint64 {
	values, err := readCounters(s.kernel.Maps[bpf.KernelMapCounters])
	if err != nil {
		return 0
	}
	return values[what]
}

// TensorTotals reads them.
func (s *Session) TensorTotals() { tensorTotals(s.kernel, s.targets.list()) }
