package source

import (
	"slices"
	"sync"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
)

// A Library is a source that probes libraries of one process. Its methods may be called by several
// goroutines.
type Library interface {
	// Update checks the mapped files that it has not checked yet, and attaches to functions that it
	// finds, unless the source is paused.
	Update(maps []process.Mapping)
	// Stop makes Update stop at the next file, for good. It does not wait, and detaches nothing.
	Stop()
	// Sweep removes the breakpoints that other processes have inherited by fork(2).
	Sweep() error
	// Close detaches for good. It may be called more than once, but not after the BPF object is
	// closed.
	Close() error
	// Pending reports whether Update still has to find functions.
	Pending() bool
	// Status returns the probed events, all the time or in bursts, or why none are.
	Status() Status
	// ShouldReport reports whether people should see the status. heapOff: source heap is not
	// wanted, so that the others are all that there is.
	ShouldReport(heapOff bool) bool
	// TurnOff makes the source probe nothing. It must come before all other calls.
	TurnOff()
}

// LibraryOptions are the process that is probed, and the functions to probe.
type LibraryOptions struct {
	Kernel  *kernel.Kernel
	Process *process.Process
	Shim    *Shim // the library that the session has preloaded; nil: there is none
	// StepSymbol is as in NewSteps.
	StepSymbol string
	// Wants reports whether a source is wanted.
	Wants func(name string) bool
}

// Libraries are the sources of one process. Its methods may be called by several goroutines.
type Libraries struct {
	Heap    *Heap
	Tensors *Tensors
	GPU     *GPU
	Steps   *Steps

	all        []Library
	updating   sync.Mutex // held while the sources check files
	isAttached bool       // by Attach; updating guards it
}

// NewLibraries returns the sources of a process. None is attached.
func NewLibraries(o LibraryOptions) *Libraries {
	l := new(Libraries)
	for _, r := range registry {
		if r.library == nil {
			continue
		}

		made := r.library(l, o)
		if !o.Wants(r.name) {
			made.TurnOff()
		}
		l.all = append(l.all, made)
	}
	return l
}

// Attach attaches to the libraries that are mapped. Where the heap is sampled within the program,
// tensors are objects of the heap.
func (l *Libraries) Attach(maps []process.Mapping) {
	l.updating.Lock()
	defer l.updating.Unlock()

	l.isAttached = true
	l.Heap.Update(maps)
	if l.Heap.IsSampledWithin() {
		l.Tensors.Stop()
	}
	l.update(maps)
}

// Update attaches to the libraries that have been mapped since. Until Attach it does nothing.
func (l *Libraries) Update(maps []process.Mapping) {
	l.updating.Lock()
	defer l.updating.Unlock()

	if l.isAttached {
		l.update(maps)
	}
}

func (l *Libraries) update(maps []process.Mapping) {
	for _, s := range l.all {
		s.Update(maps)
	}
}

// Stop stops all sources, as Library.Stop.
func (l *Libraries) Stop() {
	for _, s := range l.all {
		s.Stop()
	}
}

// Sweep removes the breakpoints that other processes have inherited by fork(2).
func (l *Libraries) Sweep() error { return l.inParallel(Library.Sweep) }

// Reattach attaches the open probes of functions again: the thread has ended by which the kernel knew
// the process. Without it, probes go at their next hit, or are not there when they are opened again.
func (l *Libraries) Reattach() {
	if l.Heap.Active() {
		_ = l.Heap.Pause() // else they are detached when allocscope exits, here and below
		l.Heap.Open()
	}
	if l.Tensors.Active() {
		_ = l.Tensors.Pause()
		_ = l.Tensors.Open() // its status has the error
	}
	l.GPU.reattachBlocks()
	l.Steps.reattach()
}

// Close detaches all sources for good.
func (l *Libraries) Close() error { return l.inParallel(Library.Close) }

func (l *Libraries) inParallel(call func(Library) error) error {
	var calls []func() error
	for _, s := range l.all {
		calls = append(calls, func() error { return call(s) })
	}
	return InParallel(calls)
}

// Pending reports whether Update still has to find functions.
func (l *Libraries) Pending() bool { return slices.ContainsFunc(l.all, Library.Pending) }

// Statuses returns the states of all sources, the heap's first.
func (l *Libraries) Statuses() (statuses []Status) {
	for _, s := range l.all {
		statuses = append(statuses, s.Status())
	}
	return statuses
}

// Reported returns the states that people should see, the heap's first. It leaves out the sources
// whose libraries the process does not need.
func (l *Libraries) Reported() (statuses []Status) {
	heapOff := l.Heap.Status().Off
	for _, s := range l.all {
		if s.ShouldReport(heapOff) {
			statuses = append(statuses, s.Status())
		}
	}
	return statuses
}

// A state is the state of probes on a library. The package comment has the picture.
type state int

const (
	waiting  state = iota // probes are attached as soon as their functions are found
	attached              // probes are attached, and will be on functions that are found later
	paused                // Update finds functions, and attaches no probes
	refused               // the functions cannot be probed, and no other try is made
	off                   // the user did not ask for the source
	closed                // detached for good
)

// A library finds functions in the files of one process. The process may have them from its start
// or map them later.
type library struct {
	kernel  *kernel.Kernel
	process *process.Process

	mu     sync.Mutex // guards state and status
	state  state
	status Status

	// attaching is held while files are read, which may take seconds, and while probes are attached
	// or detached. It is taken before mu.
	attaching sync.Mutex
	checked   map[process.FileID]bool // each file is read once
	maxFiles  int                     // to check: a process may map any number of files
}

// newLibrary returns a library that is waiting. reason is the status of that state, for people.
func newLibrary(k *kernel.Kernel, p *process.Process, name, reason string, maxFiles int) library {
	return library{
		kernel:   k,
		process:  p,
		status:   Status{Name: name, Reason: reason},
		checked:  make(map[process.FileID]bool),
		maxFiles: maxFiles,
	}
}

// Status is as in Library.
func (l *library) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.status
}

func (l *library) setStatus(s Status) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.status = s
}

// enter changes the state, unless that is final.
func (l *library) enter(next state) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if !l.hasEnded() {
		l.state = next
	}
}

// is reports whether the state is one of these.
func (l *library) is(states ...state) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.Contains(states, l.state)
}

// hasEnded reports whether the state is final. The caller holds mu.
func (l *library) hasEnded() bool { return l.state >= refused }

// TurnOff is as in Library.
func (l *library) TurnOff() {
	l.state = off
	l.status = Status{Name: l.status.Name, Off: true}
}

// Stop is as in Library.
func (l *library) Stop() { l.enter(closed) }

// check calls find for each executable mapping of a file that is not checked yet. find returns
// whether the file is done; else it is found again in the next mappings.
func (l *library) check(maps []process.Mapping, find func(process.Mapping) (done bool)) {
	for _, m := range maps {
		if l.is(refused, off, closed) || len(l.checked) >= l.maxFiles {
			return
		}
		if m.Execute && m.IsFile() && !l.checked[m.File()] && find(m) {
			l.checked[m.File()] = true
		}
	}
}
