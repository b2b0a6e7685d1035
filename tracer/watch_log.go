package tracer

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A spell is a time during which the calls of allocators were watched, in ns, CLOCK_MONOTONIC.
type spell struct {
	from, to uint64 // to 0: it goes on
	// window: one of many, of which each stands for the time since the one before, too.
	window bool
}

// A watchLog is when the calls of allocators were watched: all the time, or in windows.
type watchLog struct {
	spells []spell // in order
	// lag is how old an object that was seen in a window must be to count.
	lag time.Duration
}

func (w *watchLog) open(now uint64, window bool) {
	w.spells = append(w.spells, spell{from: now, window: window})
}

// close ends the last spell and tells its place among all.
func (w *watchLog) close(now uint64) int {
	last := len(w.spells) - 1
	w.spells[last].to = now
	return last
}

// isOpen tells whether calls are watched now.
func (w *watchLog) isOpen() bool {
	return len(w.spells) > 0 && w.spells[len(w.spells)-1].to == 0
}

// inWindow tells whether a window is open.
func (w *watchLog) inWindow() bool { return w.isOpen() && w.spells[len(w.spells)-1].window }

// at finds the spell in which an object was born that is in the live map: what was called in a spell may return a little after
// its end. -1: before all.
func (w *watchLog) at(born uint64) int {
	i, found := slices.BinarySearchFunc(w.spells, born, func(s spell, moment uint64) int {
		if s.from == moment {
			return 0
		}
		if s.from < moment {
			return -1
		}
		return 1
	})
	if found {
		return i
	}
	return i - 1
}

// overlaps tells whether calls were watched at any moment between two.
func (w *watchLog) overlaps(from, to uint64) bool {
	for i := len(w.spells) - 1; i >= 0; i-- {
		s := w.spells[i]
		if s.from < to && (s.to == 0 || s.to > from) {
			return true
		}
		if s.to != 0 && s.to <= from {
			return false
		}
	}
	return false
}

// factor is how much time a spell stands for, in parts of its length, in a process that counts from a moment on: a window for that
// since the spell before. That of one that goes on is not known yet: 1.
func (w *watchLog) factor(i int, joined uint64) float64 {
	s := w.spells[i]
	from := max(s.from, joined)
	if !s.window || s.to <= from {
		return 1
	}
	since := from
	if i > 0 {
		since = max(w.spells[i-1].to, joined)
	}
	return float64(s.to-since) / float64(s.to-from)
}

// entered is when an object that was born in a spell enters the books, in ns.
func (w *watchLog) entered(i int, born uint64) uint64 {
	if i >= 0 && w.spells[i].window {
		return born + uint64(w.lag)
	}
	return born
}

// watch describes it for a snapshot.
func (w *watchLog) watch(started uint64) growth.Watch {
	var told growth.Watch
	var factors, ended float64
	for i, s := range w.spells {
		if !s.window {
			continue
		}
		if told.Windows == 0 {
			told.Since = time.Duration(max(s.from, started) - started)
		}
		told.Windows++
		if s.to != 0 {
			told.Open += time.Duration(s.to - s.from)
			factors += w.factor(i, 0)
			ended++
		}
	}
	if told.Windows > 0 {
		told.Lag, told.Factor = w.lag, factors/max(ended, 1)
	}
	return told
}

// maturity is the lag for a trace of that length; 0: without a known end. What is younger than a minute cannot be told from
// what is about to be freed; a short trace has to do with less.
func maturity(duration time.Duration) time.Duration {
	const shortest, longest = 10 * time.Second, time.Minute
	if duration == 0 {
		return longest
	}
	return min(max(duration/5, shortest), longest)
}
