package tracer

import (
	"github.com/allocscope/allocscope/tracer/liveness"
)

// An Allocator is the malloc of a traced process, as far as it limits the findings of a trace.
type Allocator struct {
	PID int
	liveness.Malloc
}

// Allocators returns the mallocs of the processes whose heap is traced by probes of its functions.
func (s *Session) Allocators() []Allocator {
	s.following.Lock()
	defer s.following.Unlock()
	var found []Allocator
	for _, t := range s.targets.list() {
		heap := t.sources.Heap
		if !heap.Status().Attached || len(heap.Producers) > 0 || t.err() != nil {
			continue
		}
		maps, err := t.process.Maps()
		if err != nil {
			continue
		}
		m, err := liveness.Identify(t.process, maps)
		if err != nil {
			continue // the process has just exited, or executes another program
		}
		found = append(found, Allocator{PID: t.process.PID, Malloc: m})
	}
	return found
}
