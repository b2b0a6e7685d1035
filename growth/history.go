package growth

import (
	"slices"
	"time"
)

// Bounds of a history.
const (
	// maxHistories bounds the processes: a script may run any number of short commands.
	maxHistories = 64
	// maxGPUs bounds the GPUs and instances: a machine of 16 GPUs has at most 112 instances.
	maxGPUs = 256
	// maxSamples bounds the samples of all timelines and the rows, some 200 bytes each.
	maxSamples = 1 << 18
)

// A ProcessHistory is the life of one process in a trace.
type ProcessHistory struct {
	Member
	// Timeline of a process. Untraced workers, which come and go in numbers, lose the earlier part
	// of it where there are too many samples.
	Timeline Timeline
	// First and Last sample of the tree that had the process.
	First, Last time.Duration
	// End is when its PID was found to run another program; 0: it was not.
	End time.Duration
	// Stopped and Frozen are how long it was halted, to a sample.
	Stopped, Frozen time.Duration
	// Group that it is of, if it is a worker.
	Group GroupKey

	pss, private int64 // latest reading
	peakRSS      int64
}

// A History is the samples of a process tree so far. The zero value is empty.
type History struct {
	// Processes in the order in which they appeared.
	Processes []*ProcessHistory
	// Rows of the samples of the tree.
	Rows  []Row
	Marks []Mark
	// GPUs by their latest samples, in the order in which they appeared.
	GPUs []GPUSample

	thinning Thinning

	alive map[int]*ProcessHistory // by PID, in the last sample
	// restored: the last sample is of an earlier trace.
	restored bool
	groups   map[GroupKey]*Group
}

// Add adds a sample that is later than all before, and returns its row.
func (h *History) Add(m TreeSample) Row {
	alive := make(map[int]*ProcessHistory, len(m.Members))
	row := Row{
		Tree: Tree{Processes: int64(len(m.Members))}, System: m.System, Overhead: m.Overhead,
	}
	var traced []Sample
	for i, member := range m.Members {
		t := h.processOf(member, m.Elapsed)
		alive[member.PID] = t
		t.add(m.Processes[i].Sample, h.thinning.dropsLast)
		if member.Traced {
			traced = append(traced, m.Processes[i].Sample)
		}
		row.Tree.RSS = sumKnown(row.Tree.RSS, m.Processes[i].RSS)
		row.Tree.PSS = sumKnown(row.Tree.PSS, t.pss)
		row.Tree.Private = sumKnown(row.Tree.Private, t.private)
	}
	row.Sample = sumSamples(traced)
	row.Elapsed = m.Elapsed

	before := h.alive
	h.alive, h.restored = alive, false
	if h.thinning.dropsLast && len(h.Rows) > 1 {
		h.Rows = h.Rows[:len(h.Rows)-1]
	}
	h.Rows = append(h.Rows, row)
	h.thin()
	h.prune(m.Elapsed)
	h.addGroups(m)
	h.countReplaced(before)
	h.addGPUs(m.GPUs)

	return row
}

// processOf returns the history of a member. A PID that executed another program begins a new one.
func (h *History) processOf(member Member, now time.Duration) *ProcessHistory {
	t, ok := h.alive[member.PID]
	if !ok || !h.isSame(t, member) {
		if ok {
			t.End = now
		}
		t = &ProcessHistory{First: now, Last: now, pss: Unknown, private: Unknown}
		h.Processes = append(h.Processes, t)
	}

	if t.Traced && !member.Traced { // it has just ended; it stays a traced process
		member.Traced, member.From, member.Headroom = true, t.From, t.Headroom
	}
	t.addHalt(member.Condition.Halt, now-t.Last)
	t.Member, t.Last = member, now
	if t.Role.IsWorker() {
		t.Group = h.groupOf(&t.Process)
	}

	return t
}

// addHalt adds the time since the last sample, where the process is halted.
func (t *ProcessHistory) addHalt(halt Halt, since time.Duration) {
	switch halt {
	case HaltStopped:
		t.Stopped += since
	case HaltFrozen:
		t.Frozen += since
	}
}

// KeepsLast reports whether the history keeps its last sample when the next one comes.
func (h *History) KeepsLast() bool { return !h.thinning.dropsLast }

// thin drops every other sample where there are too many, and takes half as many from then on.
func (h *History) thin() {
	if !h.thinning.Take() {
		return
	}

	if h.samples() <= maxSamples {
		return
	}
	if h.forgetWorkers(); h.samples() <= maxSamples/2 {
		return
	}
	h.thinning.Halve()
	h.Rows = EveryOther(h.Rows)
	for _, t := range h.Processes {
		t.Timeline = EveryOther(t.Timeline)
	}
}

// samples counts the samples that are kept.
func (h *History) samples() int {
	n := len(h.Rows)
	for _, t := range h.Processes {
		n += len(t.Timeline)
	}
	return n
}

// forgetWorkers drops all samples of untraced workers but the last.
func (h *History) forgetWorkers() {
	for _, t := range h.Processes {
		if n := len(t.Timeline); n > 0 && t.Role.IsWorker() && !t.Traced {
			t.Timeline = slices.Clone(t.Timeline[n-1:])
		}
	}
}

// add adds a sample, which may take the place of the last one.
func (t *ProcessHistory) add(s Sample, dropsLast bool) {
	t.peakRSS = max(t.peakRSS, s.RSS)
	if s.PSS != Unknown {
		t.pss, t.private = s.PSS, s.Private
	}
	if n := len(t.Timeline); dropsLast && n > 1 {
		if last := t.Timeline[n-1]; s.PSS == Unknown { // it is read now and then
			s.PSS, s.Private = last.PSS, last.Private
		}
		t.Timeline = t.Timeline[:n-1]
	}
	t.Timeline = append(t.Timeline, s)
}

// prune drops processes that have ended: first untraced ones, then the smallest.
func (h *History) prune(now time.Duration) {
	for len(h.Processes) > maxHistories {
		least := -1
		for i, t := range h.Processes {
			if t.Last < now && (least < 0 || t.isDroppedBefore(h.Processes[least])) {
				least = i
			}
		}
		if least < 0 {
			return // all are alive
		}
		h.Processes = slices.Delete(h.Processes, least, least+1)
	}
}

// isDroppedBefore is true of the process that is dropped before the other.
func (t *ProcessHistory) isDroppedBefore(other *ProcessHistory) bool {
	if t.Traced != other.Traced {
		return !t.Traced
	}
	return t.peakRSS < other.peakRSS
}

// addGPUs keeps the latest sample of each GPU.
func (h *History) addGPUs(gpus []GPUSample) {
	for _, g := range gpus {
		i := slices.IndexFunc(h.GPUs, func(known GPUSample) bool {
			return known.Index == g.Index && known.Instance == g.Instance
		})
		switch {
		case i >= 0:
			h.GPUs[i] = g
		case len(h.GPUs) < maxGPUs:
			h.GPUs = append(h.GPUs, g)
		}
	}
}

// Traced returns the processes with all sources.
func (h *History) Traced() []*ProcessHistory {
	return slices.DeleteFunc(
		slices.Clone(h.Processes),
		func(t *ProcessHistory) bool { return !t.Traced },
	)
}

// Main returns the traced process that the trace is about: of the large ones the last to be alive,
// and of several the one that grew most. A process is large if its peak RSS is at least a quarter
// of the largest: a command after the trainer is not. A worker is the one only where it is alone
// with its size. Nil where none was traced.
func (h *History) Main() *ProcessHistory {
	traced := h.withoutReplaced(h.Traced())
	var largest int64
	for _, t := range traced {
		largest = max(largest, t.peakRSS)
	}

	large := slices.DeleteFunc(traced, func(t *ProcessHistory) bool { return t.peakRSS < largest/4 })
	isWorker := func(t *ProcessHistory) bool { return t.Role.IsWorker() }
	if !slices.ContainsFunc(large, func(t *ProcessHistory) bool { return !isWorker(t) }) {
		isWorker = func(*ProcessHistory) bool { return false }
	}

	var main *ProcessHistory
	for _, t := range slices.DeleteFunc(large, isWorker) {
		if main == nil || t.Last > main.Last || t.Last == main.Last && t.growth() > main.growth() {
			main = t
		}
	}

	return main
}

// withoutReplaced leaves out the workers that have ended, or will soon as the ones before, while a
// process that they served lives on.
func (h *History) withoutReplaced(traced []*ProcessHistory) []*ProcessHistory {
	lives := slices.ContainsFunc(traced, func(t *ProcessHistory) bool {
		return !t.Role.IsWorker() && !t.hasEnded(h)
	})
	return slices.DeleteFunc(traced, func(t *ProcessHistory) bool {
		return lives && t.Role.IsWorker() && (t.hasEnded(h) || h.IsReplaced(t))
	})
}

// growth of the RSS over the process's life, in bytes.
func (t *ProcessHistory) growth() int64 {
	if len(t.Timeline) == 0 {
		return 0
	}
	return t.Timeline.RSSAt(t.Last) - t.Timeline.RSSAt(0)
}

// IsIn is true of a snapshot that has the process while it was traced.
func (t *ProcessHistory) IsIn(s *Snapshot) bool {
	isTracedLife := s.Elapsed >= t.From && (t.End == 0 || s.Elapsed < t.End)
	return isTracedLife && slices.Contains(s.Alive, t.PID)
}

// Had reports whether the process, while it executed this program, had a PID at a time.
func (t *ProcessHistory) Had(pid int, at time.Duration) bool {
	return pid == t.PID && at >= t.First && (t.End == 0 || at < t.End)
}

// TracedNow returns how many processes are traced and in the last sample.
func (h *History) TracedNow() int {
	n, now := 0, h.Rows[len(h.Rows)-1].Elapsed
	for _, t := range h.Processes {
		if t.Traced && t.Last == now {
			n++
		}
	}
	return n
}

// IsShortLived is true of a process that was in one sample and gone in the next, such as the fork
// that is about to execute a command.
func (h *History) IsShortLived(t *ProcessHistory) bool {
	return t.First == t.Last && t.Last < h.Rows[len(h.Rows)-1].Elapsed
}
