package tracer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// heapSource is source heap of one process: the functions of the allocator that it uses, and the probes on them, which may
// come and go.
type heapSource struct {
	kernel *kernel
	pid    int
	// what is probed, and the probes while it is open; the session's watch guards them
	functions []probe.Target
	links     []link.Link

	mu   sync.Mutex
	told Source
}

// find finds the allocator's functions; nil, and source tells why, where there are none.
func (h *heapSource) find(p *process.Process, maps []process.Mapping) []probe.Target {
	functions, err := probe.Resolve(p, maps)
	if err != nil {
		h.tells(Source{Name: "heap", Reason: err.Error(), err: err})
		return nil
	}
	details := []string{"attached by " + h.kernel.mode.String()}
	if h.kernel.whyNotSession != nil {
		details = append(details, fmt.Sprintf("no uprobe session: %v", h.kernel.whyNotSession))
	}
	for _, f := range functions {
		for _, s := range f.Sites {
			details = append(details, fmt.Sprintf("%s in %s at file offset %#x: %s", s.Function.Name, f.File.Path, s.Offset, s.Reason))
		}
		for _, unprobed := range f.Unprobed {
			details = append(details, fmt.Sprintf("not probed in %s: %s", f.File.Path, unprobed))
		}
	}
	h.tells(Source{Name: "heap", Attached: true, Details: details})
	return functions
}

func (h *heapSource) tells(s Source) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.told = s
}

// source tells what is probed, be it now and then, or why nothing is.
func (h *heapSource) source() Source {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.told
}

// open attaches the probes, all or none.
func (h *heapSource) open() error {
	if h.links != nil {
		return nil
	}
	for _, f := range h.functions {
		attached, err := probe.Attach(h.kernel.mode, f, h.kernel.programs(), h.pid)
		if err != nil {
			return errors.Join(err, h.close())
		}
		h.links = append(h.links, attached...)
	}
	return nil
}

// giveUp makes source tell why nothing is probed any more.
func (h *heapSource) giveUp(why error) {
	h.functions = nil
	h.tells(Source{Name: "heap", Reason: why.Error()})
}

// close detaches them.
func (h *heapSource) close() error {
	err := probe.Close(h.links)
	h.links = nil
	return err
}
