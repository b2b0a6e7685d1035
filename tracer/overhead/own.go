package overhead

import (
	"sync"
	"time"
)

// OwnCPU is the CPU time of allocscope itself, but for reading objects: of its start and the start
// of later targets, of the time while it traces, and since the trace has ended.
type OwnCPU struct{ Start, Own, End time.Duration }

// An ownMeter divides the CPU time of allocscope among the start, the trace and its end. It may be
// used by several goroutines.
type ownMeter struct {
	read func() time.Duration // CPU time of allocscope's own processes, but to read its memory

	mu       sync.Mutex
	sum      OwnCPU
	last     time.Duration // at the last read
	hasBegun bool          // allocscope has started up
	hasEnded bool          // and the trace has ended
}

// take adds the CPU time since the last call, and returns the sums. It counts for the start until
// hasBegun is true for once.
func (m *ownMeter) take(hasBegun bool) OwnCPU {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.read()
	used := now - m.last
	m.last = now
	m.hasBegun = m.hasBegun || hasBegun
	switch {
	case m.hasEnded:
		m.sum.End += used
	case m.hasBegun:
		m.sum.Own += used
	default:
		m.sum.Start += used
	}
	return m.sum
}

// addStart has so much of the CPU time until now count for the start.
func (m *ownMeter) addStart(cost time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sum.Start += cost
	m.last += cost // if take has counted it, the next call takes it off again
}

// end has all CPU time from now on count for the end of the trace.
func (m *ownMeter) end() {
	m.take(false)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.hasEnded = true
}
