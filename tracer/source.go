package tracer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/source"
)

// attachKernelSources attaches what sees all processes.
func (s *Session) attachKernelSources() {
	s.mapping, s.fault = source.Status{Name: "mapping", Off: true}, source.Status{Name: "fault", Off: true}
	var links []link.Link
	if s.Options.wants("mapping") {
		s.mapping, links = source.AttachMapping(s.kernel)
		s.links = append(s.links, links...)
	}
	if s.Options.wants("fault") {
		s.fault, links = source.AttachFaults(s.kernel, s.Options.faultInterval(s.asked))
		s.links = append(s.links, links...)
	}
}

// checkSources makes sure that there is one that tells of memory. Those of tensors and of CUDA may wait for their libraries where no
// others were asked for.
func (s *Session) checkSources(heap, tensor, cuda source.Status) error {
	if heap.Off && s.mapping.Off && s.fault.Off && (!tensor.Off && tensor.Err == nil || !cuda.Off && cuda.Err == nil) {
		return nil
	}
	var reasons []string
	for _, source := range []source.Status{heap, s.mapping, s.fault, tensor, cuda} {
		if source.Attached {
			return nil
		}
		reasons = append(reasons, source.Name+": "+cmp.Or(source.Reason, "not asked for"))
	}
	return fmt.Errorf("%w: %s", ErrNoSource, strings.Join(reasons, "; "))
}

// Sources tells what is attached, what is not, and why.
func (s *Session) Sources() []source.Status {
	var sources []source.Status
	mapping := s.mapping
	for _, t := range s.targets.list() {
		if errors.Is(t.heap.Status().Err, probe.Err32Bit) {
			mapping.Reason = "system calls of a 32-bit program are not traced: its mappings come from /proc, without stacks"
		}
		sources = append(sources, t.sources()...)
	}
	return slices.Insert(sources, min(1, len(sources)), mapping, s.fault)
}
