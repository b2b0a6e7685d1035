package tracer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/residency"
	"github.com/allocscope/allocscope/tracer/source"
)

// kernelSources are the sources that the kernel has for all processes at once. Their BPF programs
// ignore all processes but the targets.
type kernelSources struct {
	mapping, fault source.Status
	links          []link.Link // theirs, and the link of execve
}

// attach attaches the sources that are wanted. A source that cannot be attached has its reason in
// its status. Without execve nothing can be traced.
func (k *kernelSources) attach(loaded *kernel.Kernel, o Options, faultInterval uint64) error {
	exec, err := source.AttachExec(loaded)
	if err != nil {
		return err
	}
	k.links = append(k.links, exec)

	var links []link.Link
	k.mapping = source.Status{Name: "mapping", Off: true}
	if o.wants("mapping") {
		k.mapping, links = source.AttachMapping(loaded)
		k.links = append(k.links, links...)
	}

	if oom, err := source.AttachOOM(loaded); err == nil { // else a kill looks like any exit
		k.links = append(k.links, oom)
	}

	k.fault = source.Status{Name: "fault", Off: true}
	if o.wants("fault") {
		k.fault, links = source.AttachFaults(loaded, faultInterval)
		k.links = append(k.links, links...)
	}
	return nil
}

// check returns ErrNoSource, with the reasons, if no source is attached. If only tensors or the GPU
// are wanted, these may wait for their libraries.
func (k *kernelSources) check(heap, tensor, gpu source.Status) error {
	othersOff := heap.Off && k.mapping.Off && k.fault.Off
	isPending := !tensor.Off && tensor.Err == nil || !gpu.Off && gpu.Err == nil
	if othersOff && isPending {
		return nil
	}

	var reasons []string
	for _, s := range []source.Status{heap, k.mapping, k.fault, tensor, gpu} {
		if s.Attached {
			return nil
		}
		reasons = append(reasons, s.Name+": "+cmp.Or(s.Reason, string(s.Gap), "not asked for"))
	}
	return fmt.Errorf("%w: %s", ErrNoSource, strings.Join(reasons, "; "))
}

// Sources returns the state of each source, with the reason if it is not attached.
func (s *Session) Sources() []source.Status {
	s.following.Lock()
	defer s.following.Unlock()
	var sources []source.Status
	mapping := s.sources.mapping
	for _, t := range s.targets.list() {
		if errors.Is(t.heap.Status().Err, probe.Err32Bit) {
			mapping.Gap = growth.Gap32BitCalls
		}
		sources = append(sources, t.sources()...)
	}
	return slices.Insert(sources, min(1, len(sources)), mapping, s.sources.fault)
}

// sources returns the state of the target's own sources, except for sources of libraries that the
// process has not loaded.
func (t *target) sources() []source.Status {
	heap := t.heap.Status()
	sources := append([]source.Status{heap}, t.unwinder.Status()...)

	if t.steps.ShouldReport() {
		sources = append(sources, t.steps.Status())
	}
	tensor := t.tensors.Status()
	if tensor.Attached || tensor.Off || tensor.Err != nil || heap.Off {
		sources = append(sources, tensor)
	}
	if t.gpu.ShouldReport(heap.Off) {
		sources = append(sources, t.gpu.Status())
	}

	if t.pagesErr != nil && t.isAlive() {
		reason := t.pagesErr.Error() + source.WithRemedy(residency.Remedy(t.pagesErr))
		sources = append(sources, source.Status{Name: "breakdown", Reason: reason})
	}
	for i := range sources {
		sources[i].PID = t.process.PID
	}
	return sources
}
