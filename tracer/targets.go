package tracer

import (
	"slices"
	"sync"
)

// A targetSet is the targets of a session, in the order in which they were attached. Its methods may be called from several
// goroutines.
type targetSet struct {
	mu      sync.Mutex
	targets []*target
}

// find returns the target with that PID, or nil.
func (s *targetSet) find(pid uint32) *target {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.targets {
		if uint32(t.process.PID) == pid {
			return t
		}
	}
	return nil
}

// list returns a copy.
func (s *targetSet) list() []*target {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.targets)
}

func (s *targetSet) add(t *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = append(s.targets, t)
}

func (s *targetSet) drop(t *target) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.targets = slices.DeleteFunc(s.targets, func(other *target) bool { return other == t })
}
