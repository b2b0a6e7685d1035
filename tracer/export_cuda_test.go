package tracer

// WatchesCUDA tells whether the first target's driver is probed, and whether its blocks are followed.
func (s *Session) WatchesCUDA() (driver, blocks bool) { return s.targets.list()[0].cuda.watches() }

// CUDASource is what the first target says of source cuda, told or not.
func (s *Session) CUDASource() Source { return s.targets.list()[0].cuda.source() }

// FollowBlocks follows them or gives them up, as the governor would.
func (s *Session) FollowBlocks(follow bool, interval uint64) error {
	return s.watch.FollowBlocks(follow, interval)
}

// BlockInterval is the bytes between sampled blocks; 0: they are not followed.
func (s *Session) BlockInterval() uint64 {
	s.watch.mu.Lock()
	defer s.watch.mu.Unlock()
	return s.watch.blockInterval
}

// WaitsForCUDA tells whether the first target's libraries are looked for.
func (s *Session) WaitsForCUDA() bool { return s.targets.list()[0].cuda.waits() }
