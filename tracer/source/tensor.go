package source

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// Tensors watches the functions that serve the memory of one process's tensors, from the attach on, or since their
// library was loaded. Its methods may be called from several goroutines.
type Tensors struct {
	kernel  *kernel.Kernel
	process *process.Process

	Attaching sync.Mutex // held while files are read and probes attached or detached
	examined  map[process.FileID]bool
	targets   []probe.Target // found so far
	aligned   []probe.Target // what they ask for memory, where there are any
	Links     []link.Link    // those of all these, while it is open
	wanted    bool           // it is open, or will be once there is a target

	mu     sync.Mutex
	status Status
	isOpen bool
	hadGap bool // it has been closed since it was opened first: what was freed meanwhile is not known
	off    bool
}

// Bounds: a process may map any number of files, and copies of the library.
const (
	mostTensorFiles   = 4096
	mostTensorTargets = 4
)

// NewTensors prepares to attach as soon as the functions are found. After close it waits for open.
func NewTensors(k *kernel.Kernel, p *process.Process) *Tensors {
	return &Tensors{
		kernel: k, process: p, examined: make(map[process.FileID]bool), wanted: true,
		status: Status{Name: "tensor", Reason: "no library that exports c10::alloc_cpu is mapped"},
	}
}

// turnOff makes it watch nothing. Nobody else knows it yet.
func (t *Tensors) TurnOff() {
	t.off = true
	t.status = Status{Name: "tensor", Off: true}
}

// update finds the functions in all files that are mapped, each of which is looked at once, and attaches to them.
func (t *Tensors) Update(maps []process.Mapping) {
	t.Attaching.Lock()
	defer t.Attaching.Unlock()
	for _, m := range maps {
		if t.isOff() || len(t.examined) >= mostTensorFiles || len(t.targets) >= mostTensorTargets {
			return
		}
		if !m.Execute || !m.IsFile() || t.examined[m.File()] {
			continue
		}
		t.examined[m.File()] = true
		t.find(m, maps)
	}
}

// find looks for the functions in a mapped file. That others than torch's own library lack them goes without saying. Of a
// program that is still being loaded the allocator may not be known: then the file is looked at again.
func (t *Tensors) find(m process.Mapping, maps []process.Mapping) {
	target, err := probe.ResolveTensors(t.process, m)
	isOne := err == nil
	if isOne && len(t.aligned) == 0 {
		t.aligned, err = probe.ResolveAligned(t.process, maps)
	}
	switch {
	case errors.Is(err, probe.ErrNoAllocator):
		delete(t.examined, m.File())
		t.setStatus(Status{Name: "tensor", Reason: err.Error()})
	case err == nil:
		t.targets = append(t.targets, target)
		if t.wanted {
			err = t.attach(target)
		}
		t.report(err)
	case len(t.targets) == 0 && (isOne || probe.IsTensorLibrary(m.Path)):
		t.report(err)
	}
}

// attach attaches to the functions in one file, or to nothing. What they ask for memory comes before them, and goes after them.
func (t *Tensors) attach(target probe.Target) error {
	targets := []probe.Target{target}
	if len(t.Links) == 0 {
		targets = append(slices.Clone(t.aligned), target)
	}
	var links []link.Link
	for _, target := range targets {
		attached, err := probe.Attach(t.kernel.Mode, target, t.kernel.HeapPrograms(), t.process.PID)
		if err != nil {
			return errors.Join(err, probe.Close(links))
		}
		links = append(links, attached...)
	}
	t.Links = append(t.Links, links...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isOpen = true
	return nil
}

// tell makes source tell what has been found, or why nothing is attached.
func (t *Tensors) report(err error) {
	told := Status{Name: "tensor", Attached: err == nil}
	if err != nil {
		told.Reason, told.Err = err.Error(), err
	}
	for _, target := range slices.Concat(t.targets, t.aligned) {
		for _, s := range target.Sites {
			told.Details = append(told.Details, fmt.Sprintf("%s in %s at file offset %#x: %s", s.Function.Name, target.File.Path, s.Offset, s.Reason))
		}
	}
	t.setStatus(told)
}

func (t *Tensors) setStatus(s Status) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status = s
}

// open attaches to what has been found, and makes update attach to what is found from now on.
func (t *Tensors) Open() error {
	t.Attaching.Lock()
	defer t.Attaching.Unlock()
	if t.wanted || t.isOff() {
		return nil
	}
	t.wanted = true
	var errs []error
	for _, target := range t.targets {
		errs = append(errs, t.attach(target))
	}
	err := errors.Join(errs...)
	if len(t.targets) > 0 {
		t.report(err)
	}
	return err
}

// close detaches, until open is called. What has been sampled stays in the kernel's map, where frees are not seen any more.
func (t *Tensors) Close() error {
	t.Attaching.Lock()
	defer t.Attaching.Unlock()
	t.wanted = false
	t.mu.Lock()
	t.hadGap = t.hadGap || t.isOpen
	t.isOpen = false
	t.mu.Unlock()
	err := probe.Close(t.Links)
	t.Links = nil
	return err
}

// shutdown detaches for ever. It may be called more than once, and before the kernel side is closed.
func (t *Tensors) Shutdown() error {
	t.mu.Lock()
	t.off = true // first: nobody opens it after this
	t.mu.Unlock()
	return t.Close()
}

// source tells what is probed, or why nothing is.
func (t *Tensors) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.status
}

func (t *Tensors) isOff() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.off
}

// watches reports whether tensors are watched at the moment.
func (t *Tensors) Active() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isOpen
}

// waits reports whether it looks for the functions and has not found them yet.
func (t *Tensors) Pending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.off && !t.status.Attached && t.status.Err == nil
}

// isWhole reports whether the kernel's map has all tensors that are alive of those allocated since the first attach.
func (t *Tensors) Complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isOpen && !t.hadGap
}
