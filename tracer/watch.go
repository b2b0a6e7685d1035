package tracer

import (
	"time"

	"github.com/allocscope/allocscope/growth"
)

// rollupShare is the inverse of the share of time that may go into smaps_rollup: 1/200.
const rollupShare = 200

// watcher remembers when the next reading of smaps_rollup is due: it costs 5 ms a resident GiB, and the process's mmap lock
// meanwhile.
type watcher struct {
	nextRollup time.Time
}

// Sample reads the state of the process as the kernel counts it. What could not be read is growth.Unknown. It is an error
// if the process has exited.
func (s *Session) Sample() (growth.Sample, error) {
	sample := growth.Sample{Elapsed: s.Elapsed(), PSS: growth.Unknown, Private: growth.Unknown}
	status, err := s.Process.Status()
	if err != nil {
		return sample, err
	}
	if !s.Process.Alive() {
		return sample, ErrExited // a zombie, or another process with its PID
	}
	sample.RSS, sample.Swap, sample.Virtual, sample.Threads = status.RSS, status.Swap, status.Virtual, status.Threads
	if sample.MinorFaults, sample.MajorFaults, err = s.Process.Faults(); err != nil {
		return sample, err
	}
	began := time.Now()
	if began.Before(s.watcher.nextRollup) {
		return sample, nil
	}
	sample.PSS, sample.Private, _ = s.Process.Rollup() // unknown where it cannot be read
	s.watcher.nextRollup = began.Add(rollupShare * time.Since(began))
	return sample, nil
}
