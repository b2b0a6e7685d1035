package growth

// A stackHistory is what one stack held over a window, in one kind of memory.
type stackHistory struct {
	stack *Stack
	kind  Kind
	gpu   string
	// start and end are what it held there; middle is in bytes.
	start, end Holding
	middle     int64
	// peak and lowest are of what it held, in bytes; drawdown is the deepest fall.
	peak, lowest, drawdown int64
	// seen is how many of the snapshots are in peak, lowest and drawdown: up to the last that has the stack.
	seen int
}

// histories of all that held memory at the start or the end. What is no more than resident was not seen to be allocated: it
// is of the ledger alone.
func (w *snappedWindow) histories() []stackHistory {
	index := make(map[holder]int, len(w.end().Holdings))
	var histories []stackHistory
	for _, s := range []*Snapshot{w.start(), w.end()} {
		for i := range s.Holdings {
			h := &s.Holdings[i]
			key := holderOf(h.Stack, h.Kind, h.GPU)
			if _, ok := index[key]; !ok && !h.isMerelyResident() {
				index[key] = len(histories)
				histories = append(histories, stackHistory{stack: h.Stack, kind: h.Kind, gpu: h.GPU})
			}
		}
	}
	for at, s := range w.snapshots {
		for i := range s.Holdings {
			h := &s.Holdings[i]
			if known, ok := index[holderOf(h.Stack, h.Kind, h.GPU)]; ok {
				w.enter(&histories[known], at, h)
			}
		}
	}
	return histories
}

// enter notes what a stack held at a snapshot.
func (w *snappedWindow) enter(history *stackHistory, at int, h *Holding) {
	history.heldNothingUntil(at)
	history.hold(h.InuseBytes)
	switch at {
	case 0:
		history.start = *h
	case w.middle:
		history.middle = h.InuseBytes
	case len(w.snapshots) - 1:
		history.end = *h
	}
}

// heldNothingUntil passes over the snapshots before one that do not have the stack.
func (h *stackHistory) heldNothingUntil(snapshot int) {
	for h.seen < snapshot {
		h.hold(0)
	}
}

func (h *stackHistory) hold(bytes int64) {
	if h.seen == 0 {
		h.peak, h.lowest = bytes, bytes
	}
	h.peak, h.lowest = max(h.peak, bytes), min(h.lowest, bytes)
	h.drawdown = max(h.drawdown, h.peak-bytes)
	h.seen++
}

// refills is true of a sawtooth: it fell by more than half of all that it ever moved.
func (h *stackHistory) refills() bool { return h.drawdown > (h.peak-h.lowest)/2 }
