package source

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf/link"

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

	attached []probe.FileSites // Functions as they are probed while the source is open

	guardedStatus
}

// Find returns the allocator's functions. It returns nil if there are none, and sets the status in
// either case.
func (h *Heap) Find(maps []process.Mapping) []probe.FileSites {
	functions, err := probe.Resolve(h.Process, maps)
	var found followed
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

	h.SetStatus(Status{Name: "heap", Attached: true, Details: lines})
	return functions
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

// Close detaches the probes.
func (h *Heap) Close() error {
	err := probe.Close(h.Links)
	h.Links = nil
	return err
}
