package growth

import "time"

// A snappedWindow is a window whose ends and middle are snapshots.
type snappedWindow struct {
	// snapshots from its start to its end, at least two.
	snapshots []*Snapshot
	// middle is the index of the snapshot within the window that is nearest to its middle; 0: there is none.
	middle int
	// startBin and middleBin are the last bins of the end's Bins before the start and the middle; -1: there is none.
	startBin, middleBin int
}

// snapWindow is false where the window does not span two snapshots of different times.
func snapWindow(snapshots []*Snapshot, window Window) (snappedWindow, bool) {
	start, end := -1, -1
	for i, s := range snapshots {
		if s.Elapsed <= window.To {
			end = i
		}
	}
	for i, s := range snapshots[:end+1] {
		if s.Elapsed < snapshots[end].Watch.settled() {
			continue
		}
		if start < 0 || (s.Elapsed-window.From).Abs() < (snapshots[start].Elapsed-window.From).Abs() {
			start = i
		}
	}
	if start < 0 || end <= start || snapshots[end].Elapsed <= snapshots[start].Elapsed {
		return snappedWindow{}, false
	}
	w := snappedWindow{snapshots: snapshots[start : end+1]}
	w.middle = w.nearestToMiddle()
	w.startBin = lastBin(w.end().Bins, w.start().Elapsed)
	w.middleBin = lastBin(w.end().Bins, w.snapshots[w.middle].Elapsed)
	return w, true
}

func (w *snappedWindow) start() *Snapshot { return w.snapshots[0] }

func (w *snappedWindow) end() *Snapshot { return w.snapshots[len(w.snapshots)-1] }

func (w *snappedWindow) seconds() float64 { return (w.end().Elapsed - w.start().Elapsed).Seconds() }

func (w *snappedWindow) nearestToMiddle() int {
	from, to := w.start().Elapsed, w.end().Elapsed
	middle := from + (to-from)/2
	best := 0
	for i, s := range w.snapshots {
		within := s.Elapsed > from && s.Elapsed < to
		if within && (best == 0 || (s.Elapsed-middle).Abs() < (w.snapshots[best].Elapsed-middle).Abs()) {
			best = i
		}
	}
	return best
}

// lastBin is the bin that ends nearest to a moment; -1 where the start of the trace, before all bins, is nearer.
func lastBin(ends []time.Duration, moment time.Duration) int {
	best, off := -1, moment.Abs()
	for i, end := range ends {
		if (end - moment).Abs() <= off {
			best, off = i, (end - moment).Abs()
		}
	}
	return best
}
