package source

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/shim"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// Heap is source heap of one process: the functions of the C allocator that it uses. Their probes
// are opened and closed many times if the heap is sampled in bursts.
type Heap struct {
	Kernel  *kernel.Kernel
	Process *process.Process
	// Functions are probed while the source is open. The session guards them and Links.
	Functions []probe.FileSites
	Links     []link.Link // empty while the source is closed
	// Shim is the library that the session has preloaded; nil: there is none.
	Shim *Shim
	// Producers sample the heap themselves. Their probes, and no functions, are attached until Detach.
	Producers []probe.Producer

	attached []probe.FileSites // Functions as they are probed while the source is open
	produced []link.Link       // on Producers; the session guards them, too

	guardedStatus
}

// Find returns the allocator's functions, nil if there are none. If the process has producers, it
// attaches to their probes. It sets the status in any case.
func (h *Heap) Find(maps []process.Mapping) []probe.FileSites {
	functions, err := probe.Resolve(h.Process, maps)
	refusal := h.followProducers(maps, functions)
	if len(h.Producers) > 0 {
		return functions
	}

	var found followedFiles
	if err == nil {
		found, err = follow(h.Kernel, h.Process, functions)
	}
	if err != nil {
		h.SetStatus(Status{Name: "heap", Reason: err.Error(), Err: err})
		return nil
	}

	lines := []string{"attached by " + h.Kernel.Mode.String()}
	if h.Kernel.SessionRefusal != nil {
		lines = append(lines, fmt.Sprintf("no uprobe session: %v", h.Kernel.SessionRefusal))
	}
	if found.unsafe != nil {
		lines = append(lines, fmt.Sprintf("no return probes: %v", found.unsafe))
	}
	lines = append(lines, details(found.files...)...)

	status := Status{Name: "heap", Attached: true, Details: lines}
	if refusal != nil {
		status.Reason = fmt.Sprintf("malloc is probed instead: %v", refusal)
	}
	h.SetStatus(status)
	return functions
}

// followProducers attaches to the probes of the producers that the process has mapped, but for the
// session's own library, which has probes in all processes. It sees the allocations of others, so
// that they do not count beside it, whatever their probes are. An error is why it has not attached.
func (h *Heap) followProducers(maps []process.Mapping, functions []probe.FileSites) error {
	producers, err := probe.FindProducers(h.Process, maps)
	isHidden := func(p probe.Producer) bool { return isHidden(p, functions) }
	producers = slices.DeleteFunc(producers, isHidden)
	if i := slices.IndexFunc(producers, h.Shim.Is); i >= 0 {
		producers, err = producers[i:i+1], nil
	}
	if err != nil || len(producers) == 0 {
		return err
	}

	status := Status{Name: "heap", Attached: true}
	var all []link.Link
	for _, p := range producers {
		status.Details = append(status.Details, p.Details()...)
		if h.Shim.Is(p) {
			continue
		}
		status.Producers = append(status.Producers, growth.Printable(p.Mapping.Path))
		links, err := probe.AttachProducer(
			h.Kernel.Mode, p, h.Kernel.Program, h.Kernel.ProducerCookie, h.Process.PID)
		if err != nil {
			return errors.Join(err, probe.Close(all))
		}
		all = append(all, links...)
	}
	h.Producers, h.produced = producers, all
	h.SetStatus(status)
	return nil
}

// isHidden reports whether a producer is a shim that samples nothing, because the program calls
// another file's free: it may be linked with an allocator.
func isHidden(p probe.Producer, functions []probe.FileSites) bool {
	isCalled := func(f probe.FileSites) bool {
		return f.Mapping.Path == p.Mapping.Path && slices.Contains(f.Functions(), "free")
	}
	return shim.HasName(p.Mapping.Path) && len(functions) > 0 &&
		!slices.ContainsFunc(functions, isCalled)
}

// Open attaches the probes, all or none.
func (h *Heap) Open() error {
	if h.Links != nil {
		return nil
	}

	found, err := follow(h.Kernel, h.Process, h.Functions)
	if err != nil {
		return err
	}
	h.attached = found.files
	for _, file := range h.attached {
		links, err := probe.Attach(h.Kernel.Mode, file, h.Kernel.Program, h.Process.PID)
		if err != nil {
			return errors.Join(err, h.Close())
		}
		h.Links = append(h.Links, links...)
	}
	return nil
}

// Sweep removes the breakpoints that other processes have inherited by fork(2).
func (h *Heap) Sweep() error {
	if h.Links == nil {
		return nil
	}
	return h.Kernel.Sweep(h.attached)
}

// GiveUp forgets the functions, because of an error that the status reports.
func (h *Heap) GiveUp(err error) {
	h.Functions = nil
	h.SetStatus(Status{Name: "heap", Reason: err.Error()})
}

// Detach takes all links out of the source, which never opens again.
func (h *Heap) Detach() []link.Link {
	links := append(h.Links, h.produced...)
	h.Links, h.produced, h.Functions = nil, nil, nil
	return links
}

// Close detaches the probes of functions.
func (h *Heap) Close() error {
	err := probe.Close(h.Links)
	h.Links = nil
	return err
}
