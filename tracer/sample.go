package tracer

import (
	"math"

	"github.com/allocscope/allocscope/bpf"
	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/kernel"
)

// Sample reads the state of all processes of the tree and of the memory of the system. What could not
// be read is growth.Unknown.
func (s *Session) Sample() growth.Moment {
	s.events.flush() // of events that are not urgent, and wake no reader
	sample := s.follower.Sample(s.Elapsed())
	sample.Price = s.overheadSample()

	tensors, onGPUs := tensorTotals(s.kernel, s.targets.list()), s.gpus.sample()
	for i, m := range s.follower.Members() {
		ofProcess := &sample.Processes[i]
		ofProcess.Steps = growth.Unknown
		member := growth.Member{Process: m.Info}

		if t := s.targets.find(uint32(m.Info.PID)); t != nil && t.err() == nil {
			member.Traced, member.From = true, t.from
			ofProcess.Steps = t.steps.Count()
			setTensors(&ofProcess.Sample, tensors, m.Info.PID)
			onGPUs.Set(&ofProcess.Sample, m.Info.PID)

			isPending := t.tensors.Pending() || t.gpu.Pending()
			if isPending && !s.sources.mapping.Attached { // no event reports a library that is loaded
				t.unwinder.Refresh()
			}
		}
		sample.Members = append(sample.Members, member)
	}
	sample.GPUs = s.gpus.nvml.Samples(s.gpus.initialPIDs())
	return sample
}

// IsTraced reports whether a process is traced now.
func (s *Session) IsTraced(pid int) bool {
	t := s.targets.find(uint32(pid))
	return t != nil && t.err() == nil
}

// Stopped reports whether a target's process is stopped by a signal or a debugger.
func (s *Session) Stopped(pid int) bool {
	t := s.targets.find(uint32(pid))
	if t == nil {
		return false
	}
	status, err := t.process.Status()
	return err == nil && (status.State == 'T' || status.State == 't')
}

// tensorTotal is the estimated number of live CPU tensors of a process, and their bytes.
type tensorTotal struct {
	objects float64
	bytes   int64
}

// tensorTotals returns those of each process whose tensors have been probed without a gap, by PID; nil:
// there is none, or the kernel's map could not be read.
func tensorTotals(k *kernel.Kernel, targets []*target) map[uint32]tensorTotal {
	totals := make(map[uint32]tensorTotal)
	for _, t := range targets {
		if t.tensors.Complete() {
			totals[uint32(t.process.PID)] = tensorTotal{}
		}
	}
	if len(totals) == 0 {
		return nil
	}

	err := kernel.ReadMap(k.Tensors, func(key *bpf.Address, a *bpf.Allocation) {
		total, ok := totals[key.Tgid]
		if !ok {
			return
		}
		weight := growth.Weight(a.Size, uint64(a.Interval))
		total.objects += weight
		total.bytes += int64(math.Round(weight * float64(a.Size)))
		totals[key.Tgid] = total
	})
	if err != nil {
		return nil
	}
	return totals
}

// setTensors sets the tensors of a process's sample if they are known.
func setTensors(sample *growth.Sample, totals map[uint32]tensorTotal, pid int) {
	if total, ok := totals[uint32(pid)]; ok {
		sample.Tensors, sample.TensorBytes = int64(math.Round(total.objects)), total.bytes
	}
}
