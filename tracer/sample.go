package tracer

import "github.com/allocscope/allocscope/growth"

// Sample reads the state of all processes of the tree and of the memory around them. What could not be read is
// growth.Unknown.
func (s *Session) Sample() growth.TreeSample {
	s.events.flush() // those that can wait do not wake anybody
	moment := s.follower.Sample(s.Elapsed())
	moment.Overhead = s.price()
	tensors, devices := tensorTotals(s.kernel, s.targets.list()), s.gpus.sample()
	for i, m := range s.follower.Members() {
		member := growth.Member{Process: m.Info}
		moment.Processes[i].Steps = growth.Unknown
		if t := s.targets.find(uint32(m.Info.PID)); t != nil && t.err() == nil {
			member.Traced, member.From = true, t.from
			moment.Processes[i].Steps = t.steps.Count()
			setTensors(&moment.Processes[i].Sample, tensors, m.Info.PID)
			devices.Set(&moment.Processes[i].Sample, m.Info.PID)
			if (t.tensors.Pending() || t.gpu.Pending()) && !s.mapping.Attached { // nobody tells of libraries that are loaded
				t.unwinder.Refresh()
			}
		}
		moment.Members = append(moment.Members, member)
	}
	moment.GPUs = s.gpus.nvml.Samples(s.gpus.initialPIDs())
	return moment
}

// IsTraced tells whether a process is traced now.
func (s *Session) IsTraced(pid int) bool {
	t := s.targets.find(uint32(pid))
	return t != nil && t.err() == nil
}

// Stopped tells whether a traced process is stopped, by a signal or a debugger.
func (s *Session) Stopped(pid int) bool {
	t := s.targets.find(uint32(pid))
	if t == nil {
		return false
	}
	status, err := t.process.Status()
	return err == nil && (status.State == 'T' || status.State == 't')
}

// Follow looks what has become of the tree, attaches to processes that matter from now on, and tells what has changed.
func (s *Session) Follow() []Change { return s.follower.follow() }

// Changes are what Open has found, told once.
func (s *Session) Changes() []Change { return s.follower.changes() }

// Outsiders are the processes outside the tree that grew most since the start of the trace, largest first.
func (s *Session) OtherProcesses() []growth.OtherProcess { return s.follower.otherProcesses() }
