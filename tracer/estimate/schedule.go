package estimate

import (
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
)

// A spell is a time during which the calls of allocators were watched, in ns, CLOCK_MONOTONIC.
type ProbePeriod struct {
	From, To uint64 // to 0: it goes on
	// window: one of many, of which each stands for the time since the one before, too.
	Burst bool
}

// A Schedule is when the calls of allocators were watched: all the time, or in windows.
type Schedule struct {
	Periods []ProbePeriod // in order
	// lag is how old an object that was seen in a window must be to count.
	Lag time.Duration
	// inside is what the program did within windows, and outside the rest.
	Inside, Outside Progress
}

func (w *Schedule) Open(now uint64, window bool) {
	w.Periods = append(w.Periods, ProbePeriod{From: now, Burst: window})
}

// close ends the last spell and tells its place among all.
func (w *Schedule) Close(now uint64) int {
	last := len(w.Periods) - 1
	w.Periods[last].To = now
	return last
}

// isOpen tells whether calls are watched now.
func (w *Schedule) IsOpen() bool {
	return len(w.Periods) > 0 && w.Periods[len(w.Periods)-1].To == 0
}

// inWindow tells whether a window is open.
func (w *Schedule) InBurst() bool { return w.IsOpen() && w.Periods[len(w.Periods)-1].Burst }

// hadWindows tells whether there was time between two windows, of which nothing is known but what windows tell.
func (w *Schedule) HadBursts() bool {
	return slices.ContainsFunc(w.Periods, func(s ProbePeriod) bool { return s.Burst })
}

// at finds the spell in which an object was born that is in the live map: what was called in a spell may return a little after
// its end. -1: before all.
func (w *Schedule) index(born uint64) int {
	i, found := slices.BinarySearchFunc(w.Periods, born, func(s ProbePeriod, moment uint64) int {
		if s.From == moment {
			return 0
		}
		if s.From < moment {
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
func (w *Schedule) Overlaps(from, to uint64) bool {
	for i := len(w.Periods) - 1; i >= 0; i-- {
		s := w.Periods[i]
		if s.From < to && (s.To == 0 || s.To > from) {
			return true
		}
		if s.To != 0 && s.To <= from {
			return false
		}
	}
	return false
}

// neighbours are the windows that share the time between them: single rests are as long as chance has it.
const averagedBursts = 4

// factor is how much of what the program does a spell stands for, in parts of what is done in it, in a process that counts from a
// moment on: a window for its part of the time that it and those before it stand for. That of one that goes on is not known yet: 1.
func (w *Schedule) Extrapolation(i int, joined uint64) float64 {
	if s := w.Periods[i]; !s.Burst || s.To <= max(s.From, joined) {
		return 1
	}
	var inside, outside uint64
	for k := i; k > i-averagedBursts && k >= 0; k-- {
		s := w.Periods[k]
		if !s.Burst || s.To <= joined {
			break
		}
		from := max(s.From, joined)
		inside += s.To - from
		if k > 0 {
			outside += from - max(min(w.Periods[k-1].To, from), joined)
		}
	}
	slower, _ := w.slowdown()
	return 1 + slower*float64(outside)/float64(inside)
}

// worth of a spell for who wants to see objects die, in seconds of the time between windows: in as long the program does as much.
// What is seen while every call is watched tells nothing: all of it would count at the age at which it began.
func (w *Schedule) ExposureSeconds(s ProbePeriod) float64 {
	if !s.Burst {
		return 0
	}
	slower, _ := w.slowdown()
	return time.Duration(s.To-s.From).Seconds() / slower
}

// entered is when an object that was born in a spell enters the books, in ns.
func (w *Schedule) countedFrom(i int, born uint64) uint64 {
	if i >= 0 && w.Periods[i].Burst {
		return born + uint64(w.Lag)
	}
	return born
}

// watch describes it for a snapshot.
func (w *Schedule) Coverage(started uint64) growth.HeapCoverage {
	var told growth.HeapCoverage
	var factors, ended float64
	for i, s := range w.Periods {
		if !s.Burst {
			continue
		}
		if told.Bursts == 0 {
			told.Since = time.Duration(max(s.From, started) - started)
		}
		told.Bursts++
		if s.To != 0 {
			told.Open += time.Duration(s.To - s.From)
			factors += w.Extrapolation(i, 0)
			ended++
		}
	}
	if told.Bursts > 0 {
		told.Lag, told.Extrapolation = w.Lag, factors/max(ended, 1)
	}
	return told
}

// maturity is the lag for a trace of that length; 0: without a known end. What is younger than a minute cannot be told from
// what is about to be freed; a short trace has to do with less.
func Maturity(duration time.Duration) time.Duration {
	const shortest, longest = 10 * time.Second, time.Minute
	if duration == 0 {
		return longest
	}
	return min(max(duration/5, shortest), longest)
}
