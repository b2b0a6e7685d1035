package source

import (
	"slices"
	"sync"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
)

// A state is the state of the probes on a library. They go from waiting to attached, from either to
// paused, and from paused to waiting. Any state may end in one of the last three, which are final.
type state int

const (
	waiting  state = iota // probes are attached as soon as their functions are found
	attached              // probes are attached, and will be on functions that are found later
	paused                // Update finds functions, and attaches no probes
	refused               // the functions cannot be probed, and no other try is made
	off                   // the user did not ask for the source
	closed                // detached for good
)

// isFinal reports whether no other state follows.
func (s state) isFinal() bool { return s == refused || s == off || s == closed }

// A library is the life cycle of a source that probes a library of one process. The process may
// have the library from its start or load it later. Methods may be called by several goroutines.
type library struct {
	kernel  *kernel.Kernel
	process *process.Process

	// Attaching is held while files are read, which may take seconds, and while probes are attached
	// or detached. It is taken before mu.
	Attaching sync.Mutex
	Examined  map[process.FileID]bool // each file is read once
	maxFiles  int                     // to examine: a process may map any number of files

	reporter
	state state // mu guards it
}

// newLibrary returns a library that is waiting. reason is the status of that state, for people.
func newLibrary(k *kernel.Kernel, p *process.Process, name, reason string, maxFiles int) library {
	return library{
		kernel:   k,
		process:  p,
		maxFiles: maxFiles,
		Examined: make(map[process.FileID]bool),
		reporter: reporter{status: Status{Name: name, Reason: reason}},
	}
}

// TurnOff makes the source probe nothing. It must come before all other calls.
func (l *library) TurnOff() {
	l.state = off
	l.status = Status{Name: l.status.Name, Off: true}
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

// enter changes the state, unless that is final.
func (l *library) enter(next state) {
	l.mu.Lock()
	defer l.mu.Unlock()

	if !l.state.isFinal() {
		l.state = next
	}
}

// is reports whether the state is one of these.
func (l *library) is(states ...state) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return slices.Contains(states, l.state)
}

func (l *library) isFinal() bool { return l.is(refused, off, closed) }
