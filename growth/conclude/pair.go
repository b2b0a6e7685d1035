package conclude

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/growth/spike"
	"github.com/allocscope/allocscope/growth/trend"
)

// A Pair is the baseline snapshot and the final one, between which growth is measured.
type Pair struct{ Start, End *growth.Snapshot }

// Elapsed returns the time between the two.
func (p Pair) Elapsed() time.Duration { return p.End.Elapsed - p.Start.Elapsed }

// snapshotsOf returns the snapshots in which a process was traced, outside its spikes; nil means
// every process, and all snapshots.
func (t *Trace) snapshotsOf(process *growth.ProcessHistory) []*growth.Snapshot {
	var own []*growth.Snapshot
	for _, s := range t.Snapshots {
		if process == nil || process.IsIn(s) {
			own = append(own, s)
		}
	}

	if process != nil {
		own, _ = spike.Outside(own, process.Timeline)
	}
	return own
}

// PairOf returns the baseline and the end of the growth of a process; nil: no process was traced.
// The baseline is nearest to the start of a window. A process that has exited has released its
// memory, so that the last snapshot of its life is the end. Memory left at its exit is the end only
// where there is no snapshot after the first.
func (t *Trace) PairOf(process *growth.ProcessHistory, w trend.Window) Pair {
	start, end := &growth.Snapshot{Elapsed: t.Began}, t.Exit // nothing was alive before the first snapshot
	own := t.snapshotsOf(process)
	if n := len(own); n > 1 || n == 1 && end == nil {
		end = own[n-1]
	}

	if end == nil {
		return Pair{start, start}
	}

	for _, s := range own {
		if s != end && (s.Elapsed-w.From).Abs() < (start.Elapsed-w.From).Abs() {
			start = s
		}
	}

	return Pair{start, end}
}

// ScannedPair moves the ends of a pair to snapshots in which the pages of a process were scanned:
// from before its first snapshot to that one, and from after its death to the last one of its life.
func (t *Trace) ScannedPair(process *growth.ProcessHistory, p Pair) Pair {
	pid := t.pidOf(process)
	isScanned := func(s *growth.Snapshot) bool {
		return slices.ContainsFunc(s.Residents,
			func(p growth.Resident) bool { return p.PID == pid })
	}

	own := slices.DeleteFunc(t.snapshotsOf(process),
		func(s *growth.Snapshot) bool { return !isScanned(s) })
	if n := len(own); n > 0 {
		if !isScanned(p.Start) {
			p.Start = own[0]
		}
		if !isScanned(p.End) {
			p.End = own[n-1]
		}
	}

	return p
}

// GPUPair returns the baseline and the end of the growth of GPU memory. A pair of PairOf is moved
// to snapshots in which the process lived: from before its first snapshot to that one, and from
// after its death to the last one in which it had memory on a GPU.
func (t *Trace) GPUPair(process *growth.ProcessHistory, w trend.Window) Pair {
	hasMemory := func(s *growth.Snapshot) bool {
		return slices.ContainsFunc(s.GPUMemory,
			func(d growth.ProcessGPUMemory) bool { return d.PID == process.PID })
	}

	p, own := t.PairOf(process, w), t.snapshotsOf(process)
	if len(own) > 0 && !slices.Contains(own, p.Start) {
		p.Start = own[0]
	}

	for i := len(own) - 1; i >= 0 && !hasMemory(p.End); i-- {
		if hasMemory(own[i]) {
			p.End = own[i]
		}
	}

	return p
}

// pidOf is the PID of a process; nil means the one that the user named.
func (t *Trace) pidOf(process *growth.ProcessHistory) int {
	if process == nil {
		return t.PID
	}
	return process.PID
}
