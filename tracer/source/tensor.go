package source

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf/link"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/probe"
	"github.com/allocscope/allocscope/tracer/process"
)

// Tensors is source tensor of one process: the functions that PyTorch allocates the memory of CPU
// tensors with. Its methods may be called by several goroutines.
type Tensors struct {
	library
	libraries []probe.FileSites // found so far
	aligned   []probe.FileSites // functions of the C allocator that these call for memory
	links     []link.Link       // on all of these, empty while nothing is attached
	probed    []probe.FileSites // all of these as they are probed, empty while nothing is attached

	// hadGap is set once frees were missed since the first probes were attached. It stays set in
	// all states: probes that are attached again do not know what was freed. mu guards it.
	hadGap bool
}

const (
	maxTensorFiles     = 4096
	maxTensorLibraries = 4 // a process may map copies of the library
)

// NewTensors returns a source that attaches as soon as Update finds the functions.
func NewTensors(k *kernel.Kernel, p *process.Process) *Tensors {
	const reason = "no library that exports c10::alloc_cpu is mapped"
	t := &Tensors{library: newLibrary(k, p, "tensor", reason, maxTensorFiles)}
	t.status.Code = growth.SourceNotMapped
	return t
}

// Update finds the functions in the files that are mapped, and attaches to them.
func (t *Tensors) Update(maps []process.Mapping) {
	t.attaching.Lock()
	defer t.attaching.Unlock()

	t.check(maps, func(m process.Mapping) bool {
		return len(t.libraries) < maxTensorLibraries && t.find(m, maps)
	})
}

// find looks for the functions in a mapped file. A file that lacks them is reported only if it has
// the name of PyTorch's library. While a program is being loaded its allocator may be unknown. Then
// the file is not done.
func (t *Tensors) find(m process.Mapping, maps []process.Mapping) (done bool) {
	file, err := probe.ResolveTensors(t.process, m)
	hasFunctions := err == nil
	if hasFunctions && len(t.aligned) == 0 {
		t.aligned, err = probe.ResolveAligned(t.process, maps)
		for i := range t.aligned {
			t.aligned[i].Unprobed = nil // source heap reports them
		}
	}

	switch {
	case errors.Is(err, probe.ErrNoAllocator), errors.Is(err, probe.ErrGo):
		s := failed("tensor", t.process, err)
		s.Err = nil // it may be found yet
		t.setStatus(s)
		return false
	case err == nil:
		t.libraries = append(t.libraries, file)
		if t.is(waiting, attached) {
			err = t.attach(file)
		}
		t.report(err)
	case len(t.libraries) == 0 && (hasFunctions || probe.IsTensorLibrary(m.Path)):
		t.report(err)
	}
	return true
}

// attach attaches to the functions of one file, all or none. The first time it attaches to the
// aligned functions before, so that no call inside alloc_cpu is missed.
func (t *Tensors) attach(file probe.FileSites) error {
	files := []probe.FileSites{file}
	if len(t.links) == 0 {
		files = append(slices.Clone(t.aligned), file)
	}

	found, err := follow(t.kernel, t.process, files)
	if err != nil {
		return err
	}
	var links []link.Link
	for _, file := range found.files {
		l, err := attachIn(t.kernel, t.process, func(w kernel.Way) ([]link.Link, error) {
			return probe.Attach(w.Mode, file, w.Programs, w.TID)
		})
		if err != nil {
			return errors.Join(err, probe.Close(links))
		}
		links = append(links, l...)
	}

	t.links = append(t.links, links...)
	t.probed = append(t.probed, found.files...)
	t.enter(attached)
	return nil
}

// Sweep is as in Library.
func (t *Tensors) Sweep() error {
	t.attaching.Lock()
	defer t.attaching.Unlock()

	if len(t.links) == 0 {
		return nil
	}
	return t.kernel.Sweep(t.probed)
}

// report sets the status: the functions found, or why nothing is attached.
func (t *Tensors) report(err error) {
	s := Status{
		Name: "tensor", Attached: err == nil, Err: err,
		Details: append(details(t.libraries...), details(t.aligned...)...),
	}
	if err != nil {
		s.Reason = err.Error()
	}
	t.setStatus(s)
}

// Open attaches to the functions that were found, and lets Update attach to those it finds later.
func (t *Tensors) Open() error {
	t.attaching.Lock()
	defer t.attaching.Unlock()

	if !t.is(paused) {
		return nil
	}
	t.enter(waiting)

	var errs []error
	for _, file := range t.libraries {
		errs = append(errs, t.attach(file))
	}
	err := errors.Join(errs...)
	if len(t.libraries) > 0 {
		t.report(err)
	}
	return err
}

// Pause detaches until Open is called. Sampled tensors stay in the kernel's map, which misses
// their frees from now on.
func (t *Tensors) Pause() error {
	t.attaching.Lock()
	defer t.attaching.Unlock()
	t.mu.Lock()
	t.hadGap = t.hadGap || t.state == attached
	t.mu.Unlock()
	t.enter(paused)

	err := probe.Close(t.links)
	t.links, t.probed = nil, nil
	return err
}

// Close is as in Library.
func (t *Tensors) Close() error {
	t.enter(closed) // before it waits for attaching: Update stops at the next file
	return t.Pause()
}

// Active reports whether tensors are probed at the moment.
func (t *Tensors) Active() bool { return t.is(attached) }

// Pending is as in Library.
func (t *Tensors) Pending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	return !t.hasEnded() && !t.status.Attached && t.status.Err == nil
}

// ShouldReport reports a program without PyTorch only if there is no source heap.
func (t *Tensors) ShouldReport(heapOff bool) bool {
	s := t.Status()
	return s.Attached || s.Off || s.Err != nil || heapOff
}

// Complete reports whether the kernel's map has all live tensors of those that were allocated since
// the first probes were attached.
func (t *Tensors) Complete() bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.state == attached && !t.hadGap
}
