package growth

// An EarlierProcess is a process of an earlier trace.
type EarlierProcess struct {
	Member
	// Timeline in the order of time.
	Timeline Timeline
}

// Restore adds the samples of an earlier trace to an empty history: rows, each with the samples of
// its time, and the processes, which are continued by samples of the same PID and Start.
//
// Counts since tracing started are Unknown in them, because they begin again: tensors, and memory
// from the CUDA driver. Steps are not: the caller adds the steps of the earlier trace to the later
// ones.
func (h *History) Restore(rows []Row, processes []EarlierProcess) {
	next := make([]int, len(processes)) // index in the timeline of each
	for _, row := range rows {
		row.forgetCounts()
		m := TreeSample{Elapsed: row.Elapsed, System: row.System, Overhead: row.Overhead}
		for i, p := range processes {
			for next[i] < len(p.Timeline) && p.Timeline[next[i]].Elapsed < row.Elapsed {
				next[i]++
			}
			if next[i] == len(p.Timeline) || p.Timeline[next[i]].Elapsed != row.Elapsed {
				continue
			}
			s := p.Timeline[next[i]]
			s.forgetCounts()
			m.Members = append(m.Members, p.Member)
			m.Processes = append(m.Processes, ProcessSample{PID: int64(p.PID), Sample: s})
		}

		h.Add(m)
		h.Rows[len(h.Rows)-1] = row // it has the workers, too
	}
	h.restored = true
}

// forgetCounts makes Unknown the counts that begin again with each trace, and the counts that no
// file has.
func (r *Row) forgetCounts() {
	r.Sample.forgetCounts()
	r.System.CgroupCache, r.System.Shared, r.System.Kernel = Unknown, Unknown, Unknown
}

func (s *Sample) forgetCounts() {
	s.Tensors, s.TensorBytes, s.CudaDriver, s.Pinned = Unknown, Unknown, Unknown, Unknown
}

// isSame reports whether a member is the process of a history that is alive. A process of an earlier
// trace is known by its start: when it was born is known to a tick only.
func (h *History) isSame(t *ProcessHistory, member Member) bool {
	if h.restored {
		return t.Start == member.Start
	}
	return t.Born == member.Born
}

// LastSteps are the steps of a process at its last sample that has any; 0: none were counted.
func (t *ProcessHistory) LastSteps() int64 {
	for i := len(t.Timeline) - 1; i >= 0; i-- {
		if steps := t.Timeline[i].Steps; steps != Unknown {
			return steps
		}
	}
	return 0
}
