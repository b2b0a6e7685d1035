package tracer

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// tensorProbe watches the functions that serve the memory of one process's tensors, from the attach on, or since their
// library was loaded. Its methods may be called from several goroutines.
type tensorProbe struct {
	kernel  *kernel
	process *process.Process

	attaching sync.Mutex // held while files are read and probes attached or detached
	looked    map[process.FileID]bool
	targets   []probe.Target // found so far
	aligned   []probe.Target // what they ask for memory, where there are any
	links     []link.Link    // those of all these, while it is open
	wanted    bool           // it is open, or will be once there is a target

	mu     sync.Mutex
	told   Source
	isOpen bool
	torn   bool // it has been closed since it was opened first: what was freed meanwhile is not known
	off    bool
}

// Bounds: a process may map any number of files, and copies of the library.
const (
	mostTensorFiles   = 4096
	mostTensorTargets = 4
)

// newTensorProbe prepares to attach as soon as the functions are found. After close it waits for open.
func newTensorProbe(k *kernel, p *process.Process) *tensorProbe {
	return &tensorProbe{
		kernel: k, process: p, looked: make(map[process.FileID]bool), wanted: true,
		told: Source{Name: "tensor", Reason: "no library that exports c10::alloc_cpu is mapped"},
	}
}

// turnOff makes it watch nothing. Nobody else knows it yet.
func (t *tensorProbe) turnOff() {
	t.off = true
	t.told = Source{Name: "tensor", Off: true}
}

// update finds the functions in all files that are mapped, each of which is looked at once, and attaches to them.
func (t *tensorProbe) update(maps []process.Mapping) {
	t.attaching.Lock()
	defer t.attaching.Unlock()
	for _, m := range maps {
		if t.isOff() || len(t.looked) >= mostTensorFiles || len(t.targets) >= mostTensorTargets {
			return
		}
		if !m.Execute || !m.IsFile() || t.looked[m.File()] {
			continue
		}
		t.looked[m.File()] = true
		t.find(m, maps)
	}
}

// find looks for the functions in a mapped file. That others than torch's own library lack them goes without saying. Of a
// program that is still being loaded the allocator may not be known: then the file is looked at again.
func (t *tensorProbe) find(m process.Mapping, maps []process.Mapping) {
	target, err := probe.ResolveTensors(t.process, m)
	isOne := err == nil
	if isOne && len(t.aligned) == 0 {
		t.aligned, err = probe.ResolveAligned(t.process, maps)
	}
	switch {
	case errors.Is(err, probe.ErrNoAllocator):
		delete(t.looked, m.File())
		t.tells(Source{Name: "tensor", Reason: err.Error()})
	case err == nil:
		t.targets = append(t.targets, target)
		if t.wanted {
			err = t.attach(target)
		}
		t.tell(err)
	case len(t.targets) == 0 && (isOne || probe.IsTensorLibrary(m.Path)):
		t.tell(err)
	}
}

// attach attaches to the functions in one file, or to nothing. What they ask for memory comes before them, and goes after them.
func (t *tensorProbe) attach(target probe.Target) error {
	targets := []probe.Target{target}
	if len(t.links) == 0 {
		targets = append(slices.Clone(t.aligned), target)
	}
	var links []link.Link
	for _, target := range targets {
		attached, err := probe.Attach(t.kernel.mode, target, t.kernel.programs(), t.process.PID)
		if err != nil {
			return errors.Join(err, probe.Close(links))
		}
		links = append(links, attached...)
	}
	t.links = append(t.links, links...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.isOpen = true
	return nil
}

// tell makes source tell what has been found, or why nothing is attached.
func (t *tensorProbe) tell(err error) {
	told := Source{Name: "tensor", Attached: err == nil}
	if err != nil {
		told.Reason, told.err = err.Error(), err
	}
	for _, target := range slices.Concat(t.targets, t.aligned) {
		for _, s := range target.Sites {
			told.Details = append(told.Details, fmt.Sprintf("%s in %s at file offset %#x: %s", s.Function.Name, target.File.Path, s.Offset, s.Reason))
		}
	}
	t.tells(told)
}

func (t *tensorProbe) tells(s Source) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = s
}

// open attaches to what has been found, and makes update attach to what is found from now on.
func (t *tensorProbe) open() error {
	t.attaching.Lock()
	defer t.attaching.Unlock()
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
		t.tell(err)
	}
	return err
}

// close detaches, until open is called. What has been sampled stays in the kernel's map, where frees are not seen any more.
func (t *tensorProbe) close() error {
	t.attaching.Lock()
	defer t.attaching.Unlock()
	t.wanted = false
	t.mu.Lock()
	t.torn = t.torn || t.isOpen
	t.isOpen = false
	t.mu.Unlock()
	err := probe.Close(t.links)
	t.links = nil
	return err
}

// shutdown detaches for ever. It may be called more than once, and before the kernel side is closed.
func (t *tensorProbe) shutdown() error {
	t.mu.Lock()
	t.off = true // first: nobody opens it after this
	t.mu.Unlock()
	return t.close()
}

// source tells what is probed, or why nothing is.
func (t *tensorProbe) source() Source {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.told
}

func (t *tensorProbe) isOff() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.off
}

// watches reports whether tensors are watched at the moment.
func (t *tensorProbe) watches() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isOpen
}

// waits reports whether it looks for the functions and has not found them yet.
func (t *tensorProbe) waits() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.off && !t.told.Attached && t.told.err == nil
}

// isWhole reports whether the kernel's map has all tensors that are alive of those allocated since the first attach.
func (t *tensorProbe) isWhole() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.isOpen && !t.torn
}
