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
// are opened and paused many times if the heap is sampled in bursts. Its methods may be called by
// several goroutines.
type Heap struct {
	library
	shim *Shim // the library that the session has preloaded; nil: there is none

	// Functions are probed while the source is open. attaching guards them, probed and links.
	Functions []probe.FileSites
	probed    []probe.FileSites // Functions as they are probed now
	links     []link.Link       // on them, empty while the source is paused
	produced  []link.Link       // on Producers

	// Producers sample the heap themselves. Their probes, and no functions, are attached until
	// Close. Update sets them and Code once.
	Producers []probe.Producer
	// Code is the code of the allocator.
	Code probe.AllocatorCode
}

// errNoShim is why a process that the command has started has no source heap.
var errNoShim = errors.New("the shim does not see its allocations, or was not loaded")

// NewHeap returns a source that waits for Update and for Open. shim is the library that the session
// has preloaded; nil: there is none.
func NewHeap(k *kernel.Kernel, p *process.Process, shim *Shim) *Heap {
	return &Heap{library: newLibrary(k, p, "heap", "", 0), shim: shim}
}

// Update finds the allocator's functions, which Open attaches to, or attaches to the probes of the
// producers. It does so once: a target without an allocator is attached to again.
func (h *Heap) Update(maps []process.Mapping) {
	if !h.is(waiting) {
		return
	}

	functions := h.find(maps)
	h.Code = probe.CodeOf(functions, h.Producers)
	switch {
	case len(h.Producers) > 0:
		h.enter(attached)
		return
	case h.shim != nil:
		h.refuse(errNoShim)
		return
	}

	h.attaching.Lock()
	defer h.attaching.Unlock()
	h.Functions = functions
	h.enter(paused)
}

// find returns the allocator's functions, nil if there are none. If the process has producers, it
// attaches to their probes. It sets the status in any case.
func (h *Heap) find(maps []process.Mapping) []probe.FileSites {
	functions, err := probe.Resolve(h.process, maps)
	refusal := h.followProducers(maps, functions)
	if len(h.Producers) > 0 {
		return functions
	}

	var found followedFiles
	if err == nil {
		found, err = follow(h.kernel, h.process, functions)
	}
	if err != nil {
		h.setStatus(failed("heap", h.process, err))
		return nil
	}

	lines := []string{"attached by " + h.kernel.Mode.String()}
	if h.kernel.SessionRefusal != nil {
		lines = append(lines, fmt.Sprintf("no uprobe session: %v", h.kernel.SessionRefusal))
	}
	if found.unsafe != nil {
		lines = append(lines, fmt.Sprintf("no return probes: %v", found.unsafe))
	}
	lines = append(lines, details(found.files...)...)

	status := Status{Name: "heap", Attached: true, Details: lines}
	if refusal != nil {
		status.Reason, status.Code = insteadOf+refusal.Error(), growth.SourceProducer
	}
	isHiding := func(f probe.FileSites) bool { return f.Hidden != "" }
	if i := slices.IndexFunc(functions, isHiding); i >= 0 && refusal == nil {
		status.Gap, status.File = growth.GapAllocator, functions[i].Mapping.Path
		status.Allocator = functions[i].Hidden
	}
	h.setStatus(status)
	return functions
}

// followProducers attaches to the probes of the producers that the process has mapped, but for the
// session's own library, which has probes in all processes. It sees the allocations of others, so
// that they do not count beside it, whatever their probes are. An error is why it has not attached.
func (h *Heap) followProducers(maps []process.Mapping, functions []probe.FileSites) error {
	producers, err := probe.FindProducers(h.process, maps)
	isHidden := func(p probe.Producer) bool { return isHidden(p, functions) }
	producers = slices.DeleteFunc(producers, isHidden)
	if i := slices.IndexFunc(producers, h.shim.Is); i >= 0 {
		producers, err = producers[i:i+1], nil
	}
	if err != nil || len(producers) == 0 {
		return err
	}

	status := Status{Name: "heap", Attached: true}
	var all []link.Link
	for _, p := range producers {
		status.Details = append(status.Details, p.Details()...)
		if h.shim.Is(p) {
			continue
		}
		status.Producers = append(status.Producers, growth.Printable(p.Mapping.Path))
		links, err := attachIn(h.kernel, h.process, func(w kernel.Way) ([]link.Link, error) {
			return probe.AttachProducer(w.Mode, p, w.Programs, h.kernel.ProducerCookie, w.TID)
		})
		if err != nil {
			return errors.Join(err, probe.Close(all))
		}
		all = append(all, links...)
	}
	h.attaching.Lock()
	h.Producers, h.produced = producers, all
	h.attaching.Unlock()
	h.setStatus(status)
	return nil
}

// isHidden reports whether a producer is a shim that samples nothing, because the program calls
// another file's free: it may be linked with an allocator.
func isHidden(p probe.Producer, functions []probe.FileSites) bool {
	isCalled := func(f probe.FileSites) bool {
		return f.Mapping.Path == p.Mapping.Path && !f.IsOwn && slices.Contains(f.Functions(), "free")
	}
	return shim.HasName(p.Mapping.Path) && len(functions) > 0 &&
		!slices.ContainsFunc(functions, isCalled)
}

// Open attaches the probes, all or none. A process where that fails has no source heap any more,
// and the status has the reason. A process that is exiting keeps its known data.
func (h *Heap) Open() {
	h.attaching.Lock()
	defer h.attaching.Unlock()

	if !h.is(paused) || len(h.Functions) == 0 {
		return
	}
	if err := h.attach(); err != nil && !h.process.IsExiting() {
		h.Functions = nil
		h.refuse(err)
	}
}

func (h *Heap) attach() error {
	found, err := follow(h.kernel, h.process, h.Functions)
	if err != nil {
		return err
	}

	h.probed = found.files
	for _, file := range h.probed {
		links, err := attachIn(h.kernel, h.process, func(w kernel.Way) ([]link.Link, error) {
			return probe.Attach(w.Mode, file, w.Programs, w.TID)
		})
		if err != nil {
			return errors.Join(err, h.detach())
		}
		h.links = append(h.links, links...)
	}
	h.enter(attached)
	return nil
}

// refuse gives the heap up, for good. Without Err the process is not attached to again.
func (h *Heap) refuse(why error) {
	s := failed("heap", h.process, why)
	s.Err = nil
	h.setStatus(s)
	h.enter(refused)
}

// detach detaches the probes of functions.
func (h *Heap) detach() error {
	links := h.links
	h.links = nil
	return probe.Close(links)
}

// Pause detaches the probes of functions until Open is called.
func (h *Heap) Pause() error {
	h.attaching.Lock()
	defer h.attaching.Unlock()

	if len(h.links) == 0 {
		return nil
	}
	h.enter(paused)
	return h.detach()
}

// Sweep is as in Library.
func (h *Heap) Sweep() error {
	h.attaching.Lock()
	defer h.attaching.Unlock()

	if len(h.links) == 0 {
		return nil
	}
	return h.kernel.Sweep(h.probed)
}

// Close waits for the kernel without the lock, since a burst may open the heaps of other processes
// meanwhile.
func (h *Heap) Close() error {
	h.enter(closed)
	h.attaching.Lock()
	links := append(h.links, h.produced...)
	h.links, h.produced, h.Functions = nil, nil, nil
	h.attaching.Unlock()

	return probe.Close(links)
}

// Active reports whether functions are probed at the moment.
func (h *Heap) Active() bool {
	h.attaching.Lock()
	defer h.attaching.Unlock()

	return len(h.links) > 0
}

// IsSampledWithin reports whether the program samples its heap itself, or should, so that its
// functions are not probed.
func (h *Heap) IsSampledWithin() bool { return len(h.Producers) > 0 || h.shim != nil }

// IsMissed reports whether the process has an allocator now, and had none when Update looked for
// it.
func (h *Heap) IsMissed() bool {
	if h.Status().Err == nil {
		return false
	}
	maps, err := h.process.Maps()
	if err != nil {
		return false
	}
	_, err = probe.Resolve(h.process, maps)
	return err == nil
}

// Pending is false: Update chooses the allocator once.
func (h *Heap) Pending() bool { return false }

// ShouldReport is true: each process has a heap.
func (h *Heap) ShouldReport(bool) bool { return true }
