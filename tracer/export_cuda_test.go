package tracer

import (
	"github.com/allocscope/allocscope/tracer/source"
)

// WatchesCUDA tells whether the first target's driver is probed, and whether its blocks are followed.
func (s *Session) WatchesCUDA() (driver, blocks bool) { return s.targets.list()[0].gpu.Active() }

// CUDASource is what the first target says of source cuda, told or not.
func (s *Session) CUDASource() source.Status { return s.targets.list()[0].gpu.Status() }

// FollowBlocks follows them or gives them up, as the governor would.
func (s *Session) FollowBlocks(follow bool, interval uint64) error {
	return s.probing.FollowBlocks(follow, interval)
}

// BlockInterval is the bytes between sampled blocks; 0: they are not followed.
func (s *Session) BlockInterval() uint64 {
	s.probing.mu.Lock()
	defer s.probing.mu.Unlock()
	return s.probing.blockInterval
}

// WaitsForCUDA tells whether the first target's libraries are looked for.
func (s *Session) WaitsForCUDA() bool { return s.targets.list()[0].gpu.Pending() }
