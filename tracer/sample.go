package tracer

import (
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/estimate"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// Sample reads the state of all processes of the tree and of the memory of the system. A value that
// could not be read is growth.Unknown.
func (s *Session) Sample() growth.TreeSample {
	s.following.Lock()
	defer s.following.Unlock()
	s.events.collect() // events that are not urgent, and wake no reader
	s.scanner.makeRoom()

	sample := s.follower.Sample(s.Elapsed())
	sample.Overhead = s.overheadSample()

	tensors, onGPUs := s.targets.tensorTotals(s.kernel), s.gpus.sample()
	for i, m := range s.follower.Members() {
		ofProcess := &sample.Processes[i]
		ofProcess.Steps = growth.Unknown
		member := growth.Member{Process: m.Info}

		if t := s.targets.traced(m.Info.PID); t != nil {
			member.Traced, member.From = true, t.from
			ofProcess.Steps = t.sources.Steps.Count()
			member.Headroom, member.Condition = t.process.Headroom(), t.process.Condition()
			tensors.Set(&ofProcess.Sample, m.Info.PID)
			onGPUs.Set(&ofProcess.Sample, m.Info.PID)

			isReported := s.system.IsAttached("mapping") // new libraries are, by events
			if t.sources.Pending() && !isReported {
				t.unwinder.Refresh()
			}
		}
		sample.Members = append(sample.Members, member)
	}
	sample.GPUs = s.gpus.nvml.Samples(s.gpus.initialPIDs())
	return sample
}

// IsTraced reports whether a process is traced now.
func (s *Session) IsTraced(pid int) bool { return s.targets.traced(pid) != nil }

// IsOutOfMemory reports whether the kernel has killed a target's process for want of memory, of the
// machine or of a cgroup.
func (s *Session) IsOutOfMemory(pid int) bool {
	s.events.Flush() // the event comes before the exit, which is seen otherwise
	t := s.targets.find(uint32(pid))
	return t != nil && t.outOfMemory.Load()
}

// IsStopped reports whether a target's process is stopped by a signal or a debugger.
func (s *Session) IsStopped(pid int) bool {
	s.following.Lock()
	defer s.following.Unlock()
	t := s.targets.find(uint32(pid))
	if t == nil {
		return false
	}
	status, err := t.process.Status()
	return err == nil && (status.State == 'T' || status.State == 't')
}

// tensorTotals reads the live tensors of the targets that have been probed for them without a gap.
func (s *targetSet) tensorTotals(k *kernel.Kernel) estimate.TensorTotals {
	var pids []int
	for _, t := range s.list() {
		if t.sources.Tensors.Complete() {
			pids = append(pids, t.process.PID)
		}
	}
	return estimate.ReadTensors(k, pids)
}
