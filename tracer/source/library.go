package source

import (
	"slices"
	"sync"

	"github.com/allocscope/allocscope/tracer/kernel"
	"github.com/allocscope/allocscope/tracer/process"
)

// A state is the state of probes on a library. They go from waiting to attached, from either to
// paused, and from paused to waiting. Any state may end in one of the last three, which are final.
type state int

const (
	waiting   state = iota // probes are attached as soon as their functions are found
	unchecked              // of source step: waiting, and no mapping was checked yet
	attached               // probes are attached, and will be on functions that are found later
	paused                 // Update finds functions, and attaches no probes
	refused                // the functions cannot be probed, and no other try is made
	off                    // the user did not ask for the source
	closed                 // detached for good
)

// A guardedStatus is a Status that several goroutines may use.
type guardedStatus struct {
	mu     sync.Mutex
	status Status
}

// Status returns the probed events, all the time or in bursts, or why none are.
func (g *guardedStatus) Status() Status {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.status
}

// SetStatus replaces the status.
func (g *guardedStatus) SetStatus(s Status) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.status = s
}

// A library finds functions in the files of one process. The process may have them from its start
// or map them later.
type library struct {
	guardedStatus
	state   state // mu guards it
	kernel  *kernel.Kernel
	process *process.Process

	// attaching is held while files are read, which may take seconds, and while probes are attached
	// or detached. It is taken before mu.
	attaching sync.Mutex
	checked   map[process.FileID]bool // each file is read once
	maxFiles  int                     // to check: a process may map any number of files
}

// newLibrary returns a library that is waiting. reason is the status of that state, for people.
func newLibrary(k *kernel.Kernel, p *process.Process, name, reason string, maxFiles int) library {
	return library{
		guardedStatus: guardedStatus{status: Status{Name: name, Reason: reason}},
		kernel:        k,
		process:       p,
		checked:       make(map[process.FileID]bool),
		maxFiles:      maxFiles,
	}
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

// TurnOff makes the source probe nothing. It must come before all other calls.
func (l *library) TurnOff() {
	l.state = off
	l.status = Status{Name: l.status.Name, Off: true}
}

// Stop makes Update stop at the next file, for good. It does not wait, and detaches nothing.
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
