package tracer

import (
	"time"

	"github.com/allocscope/allocscope/growth"
)

// OpenWindow begins a window, as the governor would; at first the heap is watched all the time.
func (s *Session) OpenWindow(interval uint64) error { return s.openHeap(true, interval) }

// CloseHeap ends what is open.
func (s *Session) CloseHeap() error { return s.closeHeap() }

// IsOpen tells whether the heap is watched now.
func (s *Session) IsOpen() bool { isOpen, _ := s.watch.state(); return isOpen }

// Mature says when an object that was seen in a window counts.
func (s *Session) Mature(age time.Duration) { s.watch.log.lag = age }

// PollSurvivors looks at survivors now.
func (s *Session) PollSurvivors() {
	s.watch.survivors.polled = time.Time{}
	s.pollSurvivors()
}

// Followed is how many objects are followed from outside.
func (s *Session) Followed() int { return len(s.watch.survivors.known) }

// Factor of the last spell.
func (s *Session) Factor() float64 { return s.watch.log.factor(len(s.watch.log.spells) - 1) }

// Watched says how the heap was watched.
func (s *Session) Watched() growth.Watch { return s.watch.describe(s.started) }
