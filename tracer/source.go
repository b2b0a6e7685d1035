package tracer

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/tracer/probe"
)

// attachMapping attaches source mapping: the system calls that change the address space.
func attachMapping(k *kernel) (Source, []link.Link) {
	source := Source{Name: "mapping"}
	mounted, err := ensureTracefs()
	if err != nil {
		source.Reason = err.Error()
		return source, nil
	}
	if mounted {
		source.Details = append(source.Details, "mounted tracefs at "+tracefsPath)
	}
	var links []link.Link
	// Exits first: an entry seen without its exit would leave a call pending.
	calls := []string{"munmap", "mmap", "mremap", "brk", "madvise"}
	for _, side := range []string{"exit", "enter"} {
		for _, call := range calls {
			l, err := link.Tracepoint("syscalls", "sys_"+side+"_"+call, k.Programs[side+"_mapping"], nil)
			if err != nil {
				err = fmt.Errorf("attach to tracepoint sys_%s_%s: %w", side, call, err)
				source.Reason = errors.Join(err, probe.Close(links)).Error()
				return source, nil
			}
			links = append(links, l)
		}
	}
	source.Attached = true
	source.Details = append(source.Details, "system calls: "+strings.Join(calls, ", "))
	return source, links
}

// attachExec watches for the process executing another program.
func attachExec(k *kernel) (link.Link, error) {
	l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: "sched_process_exec", Program: k.Programs[bpf.KernelProgOnExec]})
	if err != nil {
		return nil, fmt.Errorf("attach to tracepoint sched_process_exec: %w", err)
	}
	return l, nil
}

// attachKernelSources attaches what sees all processes.
func (s *Session) attachKernelSources() {
	s.mapping, s.fault = Source{Name: "mapping", Off: true}, Source{Name: "fault", Off: true}
	var links []link.Link
	if s.Options.wants("mapping") {
		s.mapping, links = attachMapping(s.kernel)
		s.links = append(s.links, links...)
	}
	if s.Options.wants("fault") {
		s.fault, links = attachFaults(s.kernel, s.Options.faultInterval(s.asked))
		s.links = append(s.links, links...)
	}
}

// checkSources makes sure that there is one that tells of memory. Those of tensors and of CUDA may wait for their libraries where no
// others were asked for.
func (s *Session) checkSources(heap, tensor, cuda Source) error {
	if heap.Off && s.mapping.Off && s.fault.Off && (!tensor.Off && tensor.err == nil || !cuda.Off && cuda.err == nil) {
		return nil
	}
	var reasons []string
	for _, source := range []Source{heap, s.mapping, s.fault, tensor, cuda} {
		if source.Attached {
			return nil
		}
		reasons = append(reasons, source.Name+": "+cmp.Or(source.Reason, "not asked for"))
	}
	return fmt.Errorf("%w: %s", ErrNoSource, strings.Join(reasons, "; "))
}

// Sources tells what is attached, what is not, and why.
func (s *Session) Sources() []Source {
	var sources []Source
	mapping := s.mapping
	for _, t := range s.targets.list() {
		if errors.Is(t.heap.source().err, probe.Err32Bit) {
			mapping.Reason = "system calls of a 32-bit program are not traced: its mappings come from /proc, without stacks"
		}
		sources = append(sources, t.sources()...)
	}
	return slices.Insert(sources, min(1, len(sources)), mapping, s.fault)
}
