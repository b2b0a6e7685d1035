package source

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// Heap is source heap of one process: the functions of the allocator that it uses, and the probes on them, which may
// come and go.
type Heap struct {
	Kernel *kernel.Kernel
	Pid    int
	// what is probed, and the probes while it is open; the session's watch guards them
	Functions []probe.Target
	Links     []link.Link

	mu     sync.Mutex
	status Status
}

// find finds the allocator's functions; nil, and source tells why, where there are none.
func (h *Heap) Find(p *process.Process, maps []process.Mapping) []probe.Target {
	functions, err := probe.Resolve(p, maps)
	if err != nil {
		h.SetStatus(Status{Name: "heap", Reason: err.Error(), Err: err})
		return nil
	}
	details := []string{"attached by " + h.Kernel.Mode.String()}
	if h.Kernel.SessionRefusal != nil {
		details = append(details, fmt.Sprintf("no uprobe session: %v", h.Kernel.SessionRefusal))
	}
	for _, f := range functions {
		for _, s := range f.Sites {
			details = append(details, fmt.Sprintf("%s in %s at file offset %#x: %s", s.Function.Name, f.File.Path, s.Offset, s.Reason))
		}
		for _, unprobed := range f.Unprobed {
			details = append(details, fmt.Sprintf("not probed in %s: %s", f.File.Path, unprobed))
		}
	}
	h.SetStatus(Status{Name: "heap", Attached: true, Details: details})
	return functions
}

func (h *Heap) SetStatus(s Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.status = s
}

// source tells what is probed, be it now and then, or why nothing is.
func (h *Heap) Status() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

// open attaches the probes, all or none.
func (h *Heap) Open() error {
	if h.Links != nil {
		return nil
	}
	for _, f := range h.Functions {
		attached, err := probe.Attach(h.Kernel.Mode, f, h.Kernel.HeapPrograms(), h.Pid)
		if err != nil {
			return errors.Join(err, h.Close())
		}
		h.Links = append(h.Links, attached...)
	}
	return nil
}

// giveUp makes source tell why nothing is probed any more.
func (h *Heap) GiveUp(why error) {
	h.Functions = nil
	h.SetStatus(Status{Name: "heap", Reason: why.Error()})
}

// close detaches them.
func (h *Heap) Close() error {
	err := probe.Close(h.Links)
	h.Links = nil
	return err
}
