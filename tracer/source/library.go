package source

import (
	"slices"
	"sync"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
)

// A state is the state of probes. They go from waiting to attached, from either to paused, and from
// paused to waiting. Any state may end in one of the last three, which are final.
type state int

const (
	waiting  state = iota // probes are attached as soon as their functions are found
	attached              // probes are attached, and will be on functions that are found later
	paused                // Update finds functions, and attaches no probes
	refused               // the functions cannot be probed, and no other try is made
	off                   // the user did not ask for the source
	closed                // detached for good
)

// A lifecycle is the state of probes, and their status for people. Its methods may be called by
// several goroutines.
type lifecycle struct {
	mu     sync.Mutex // guards state and status
	state  state
	status Status
}

// enter changes the state, unless that is final.
func (l *lifecycle) enter(next state) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if !l.hasEnded() {
		l.state = next
	}
}

// is reports whether the state is one of these.
func (l *lifecycle) is(states ...state) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.Contains(states, l.state)
}

// isFinal reports whether the state is final.
func (l *lifecycle) isFinal() bool { return l.is(refused, off, closed) }

// hasEnded is isFinal for callers that hold mu.
func (l *lifecycle) hasEnded() bool {
	return l.state == refused || l.state == off || l.state == closed
}

// TurnOff makes the source probe nothing. It must come before all other calls.
func (l *lifecycle) TurnOff() {
	l.state = off
	l.status = Status{Name: l.status.Name, Off: true}
}

// Status returns what is probed, all the time or in bursts, or why nothing is.
func (l *lifecycle) Status() Status {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.status
}

// SetStatus replaces the status.
func (l *lifecycle) SetStatus(s Status) {
	l.mu.Lock()
	defer l.mu.Unlock()

	l.status = s
}

// A library finds functions in the files of one process. The process may have them from its start
// or map them later.
type library struct {
	lifecycle
	kernel  *kernel.Kernel
	process *process.Process

	// Attaching is held while files are read, which may take seconds, and while probes are attached
	// or detached. It is taken before mu.
	Attaching sync.Mutex
	Examined  map[process.FileID]bool // each file is read once
	maxFiles  int                     // to examine: a process may map any number of files
}

// newLibrary returns a library that is waiting. reason is the status of that state, for people.
func newLibrary(k *kernel.Kernel, p *process.Process, name, reason string, maxFiles int) library {
	return library{
		lifecycle: lifecycle{status: Status{Name: name, Reason: reason}},
		kernel:    k,
		process:   p,
		Examined:  make(map[process.FileID]bool),
		maxFiles:  maxFiles,
	}
}

// examine calls find for each executable mapping of a file that is not examined yet. find returns
// whether the file is done; else it is found again in the next mappings.
func (l *library) examine(maps []process.Mapping, find func(process.Mapping) (done bool)) {
	for _, m := range maps {
		if l.isFinal() || len(l.Examined) >= l.maxFiles {
			return
		}
		if m.Execute && m.IsFile() && !l.Examined[m.File()] && find(m) {
			l.Examined[m.File()] = true
		}
	}
}
