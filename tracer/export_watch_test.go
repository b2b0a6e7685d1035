package tracer

import (
	"errors"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// OpenWindow begins a window, as the governor would; at first the heap is watched all the time.
func (s *Session) OpenWindow(interval uint64) error { return s.probing.OpenHeap(true, interval) }

// CloseHeap ends what is open.
func (s *Session) CloseHeap() error { return s.probing.CloseHeap() }

// IsOpen tells whether the heap is watched now.
func (s *Session) IsOpen() bool { return s.probing.IsOpen() }

// Mature says when an object that was seen in a window counts.
func (s *Session) Mature(age time.Duration) { s.probing.schedule.Lag = age }

// PollSurvivors looks at survivors now.
func (s *Session) PollSurvivors() {
	s.probing.tracker.CheckedAt = time.Time{}
	s.probing.CheckLiveness()
}

// Followed is how many objects are followed from outside.
func (s *Session) Followed() int { return len(s.probing.tracker.Objects) }

// Factor of the last spell.
func (s *Session) Factor() float64 {
	return s.probing.schedule.Extrapolation(len(s.probing.schedule.Periods)-1, 0)
}

// Watched says how the heap was watched.
func (s *Session) Watched() growth.HeapCoverage { return s.probing.describe(s.started) }

// OpenFully begins to watch every call, as the governor would.
func (s *Session) OpenFully(interval uint64) error { return s.probing.OpenHeap(false, interval) }

// OpenTensorWindow begins a window for tensors where nobody watches the heap, as the governor would.
func (s *Session) OpenTensorWindow(interval uint64) error {
	return errors.Join(s.probing.AttachTensors(true), s.probing.SetIntervals(interval, interval), s.probing.OpenHeap(true, interval))
}

// CloseTensorWindow ends what is open, and detaches the probes on tensors.
func (s *Session) CloseTensorWindow() error {
	return errors.Join(s.probing.CloseHeap(), s.probing.AttachTensors(false), s.probing.SetIntervals(1, 0))
}

// HandOverTensors makes survivors of the tensors that are alive.
func (s *Session) HandOverTensors() error {
	s.probing.mu.Lock()
	defer s.probing.mu.Unlock()
	return s.probing.handOverTensors()
}

// MisplaceHeap makes it impossible to attach to the allocator of a target.
func (s *Session) MisplaceHeap(pid int) {
	for i := range s.targets.find(uint32(pid)).heap.Functions {
		s.targets.find(uint32(pid)).heap.Functions[i].Path = "/nonexistent"
	}
}

// Flush waits for what the kernel side has told.
func (s *Session) Flush() { s.events.flush() }

// Learnt is how many stacks and processes something is known of.
func (s *Session) Learnt() (hazards, allocators int) {
	s.probing.mu.Lock()
	defer s.probing.mu.Unlock()
	return len(s.probing.tracker.HazardRates), len(s.probing.tracker.Allocators)
}

// Meter takes readings as the governor does, without one, and tells of how many processes it remembers the CPU time.
func (s *Session) Meter() (read func() error, remembered func() int) {
	m := overhead.NewMeter(s.kernel, &s.reading, s.Elapsed, s.usage, s.tables.Busy, func() []controller.Step { return s.stepTimes.take(s.probing.overlaps) })
	return func() error { _, err := m.Read(); return err }, func() int { return len(m.Targets) }
}

// EndUnnoticed waits for the end of a target, and makes it look as if nobody had noticed.
func (s *Session) EndUnnoticed(pid int) {
	t := s.targets.find(uint32(pid))
	t.watcher.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ending = nil
}
