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
	// inside is what the program did within windows, and outside the rest.
	inside, outside work
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

// hadWindows tells whether there was time between two windows, of which nothing is known but what windows tell.
func (w *watchLog) hadWindows() bool {
	return slices.ContainsFunc(w.spells, func(s spell) bool { return s.window })
}

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

// neighbours are the windows that share the time between them: single rests are as long as chance has it.
const neighbours = 4

// factor is how much of what the program does a spell stands for, in parts of what is done in it, in a process that counts from a
// moment on: a window for its part of the time that it and those before it stand for. That of one that goes on is not known yet: 1.
func (w *watchLog) factor(i int, joined uint64) float64 {
	if s := w.spells[i]; !s.window || s.to <= max(s.from, joined) {
		return 1
	}
	var inside, outside uint64
	for k := i; k > i-neighbours && k >= 0; k-- {
		s := w.spells[k]
		if !s.window || s.to <= joined {
			break
		}
		from := max(s.from, joined)
		inside += s.to - from
		if k > 0 {
			outside += from - max(min(w.spells[k-1].to, from), joined)
		}
	}
	slower, _ := w.slower()
	return 1 + slower*float64(outside)/float64(inside)
}

// worth of a spell for who wants to see objects die, in seconds of the time between windows: in as long the program does as much.
// What is seen while every call is watched tells nothing: all of it would count at the age at which it began.
func (w *watchLog) worth(s spell) float64 {
	if !s.window {
		return 0
	}
	slower, _ := w.slower()
	return time.Duration(s.to-s.from).Seconds() / slower
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
