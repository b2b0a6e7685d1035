package estimate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/allocscope/allocscope/growth"
	"github.com/allocscope/allocscope/tracer/overhead/controller"
)

// ProbePeriod is a span of time in which the allocator probes were open.
type ProbePeriod struct {
	// From and To are in ns, CLOCK_MONOTONIC. To is 0 while the period lasts.
	From, To uint64
	// Burst is set if this is one of several bursts, which also represents the time before it,
	// without probes.
	Burst bool
}

// Schedule records when the allocator probes were open: all the time, or in bursts.
type Schedule struct {
	Periods []ProbePeriod // in order
	// Lag is the age from which on an object that was born in a burst counts. A younger one cannot
	// be distinguished from one that is about to be freed.
	Lag time.Duration
	// Inside is the progress of the traced processes during bursts, and Outside between them.
	Inside, Outside Progress

	resident    []residentReading // in order
	calibration calibration
}

// Open begins a period. now is in ns, CLOCK_MONOTONIC, as all moments here.
func (s *Schedule) Open(now uint64, burst bool) {
	s.Periods = append(s.Periods, ProbePeriod{From: now, Burst: burst})
}

// Close ends the last period, or moves its end, and returns its index.
func (s *Schedule) Close(now uint64) int {
	last := len(s.Periods) - 1
	s.Periods[last].To = now
	return last
}

// IsOpen reports whether a period is going on.
func (s *Schedule) IsOpen() bool {
	return len(s.Periods) > 0 && s.Periods[len(s.Periods)-1].To == 0
}

// InBurst reports whether a burst is going on.
func (s *Schedule) InBurst() bool {
	return s.IsOpen() && s.Periods[len(s.Periods)-1].Burst
}

// HadBursts reports whether there was any burst.
func (s *Schedule) HadBursts() bool {
	return slices.ContainsFunc(s.Periods, func(p ProbePeriod) bool { return p.Burst })
}

// index returns the index of the period in which an object of the live map was born; -1: before
// all. A call that begins in a period may return a little after its end, so that the period that
// began last is the right one.
func (s *Schedule) index(born uint64) int {
	compare := func(p ProbePeriod, moment uint64) int { return cmp.Compare(p.From, moment) }
	i, found := slices.BinarySearchFunc(s.Periods, born, compare)
	if found {
		return i
	}
	return i - 1
}

// Overlaps reports whether any period lies, even in part, between two moments.
func (s *Schedule) Overlaps(from, to uint64) bool {
	for _, p := range slices.Backward(s.Periods) {
		if p.From < to && (p.To == 0 || p.To > from) {
			return true
		}
		if p.To != 0 && p.To <= from {
			return false
		}
	}
	return false
}

// Unprobed returns the objects that were born while no probe was open. The live map has the others,
// as far as they are sampled. It reuses the memory of objects.
func (s *Schedule) Unprobed(objects []MappedObject) []MappedObject {
	return slices.DeleteFunc(objects, func(o MappedObject) bool {
		return s.Overlaps(o.Born, o.Born+1)
	})
}

// averagedBursts is the number of bursts that share the pauses between them. Pauses are random, so
// that a single one shows little.
const averagedBursts = 4

// Extrapolation returns the factor by which allocations seen in period i are multiplied to cover
// the time since the previous burst:
//
//	1 + slowdown · pauses / bursts.
//
// Only the time since tracedSince counts, when tracing of the process started. The factor is 1 for
// continuous probing and for a burst that is still open.
func (s *Schedule) Extrapolation(i int, tracedSince uint64) float64 {
	slowdown, _ := s.slowdown()
	return 1 + slowdown*s.pausesPerBurst(i, tracedSince)
}

// pausesPerBurst returns the total length of the pauses before the last averagedBursts bursts up to
// period i, divided by the total length of the bursts.
func (s *Schedule) pausesPerBurst(i int, tracedSince uint64) float64 {
	if p := s.Periods[i]; !p.Burst || p.To <= max(p.From, tracedSince) {
		return 0
	}

	var bursts, pauses uint64 // ns
	for k := i; k > i-averagedBursts && k >= 0; k-- {
		p := s.Periods[k]
		if !p.Burst || p.To <= tracedSince {
			break
		}

		from := max(p.From, tracedSince)
		bursts += p.To - from
		if k > 0 {
			pauses += from - max(min(s.Periods[k-1].To, from), tracedSince)
		}
	}
	return float64(pauses) / float64(bursts)
}

// ExposureSeconds returns the length of a burst in seconds without probes, the unit of hazard
// rates. Probes slow the program down, so that a burst of 1 s counts for less. Continuous probing
// has no exposure: it would count at the age at which it began.
func (s *Schedule) ExposureSeconds(p ProbePeriod) float64 {
	if !p.Burst {
		return 0
	}
	slowdown, _ := s.slowdown()
	return time.Duration(p.To-p.From).Seconds() / max(1, slowdown)
}

// countedFrom returns the moment from which on an object counts that was born in period i, or
// before all (-1).
func (s *Schedule) countedFrom(i int, born uint64) uint64 {
	if i >= 0 && s.Periods[i].Burst {
		return born + uint64(s.Lag)
	}
	return born
}

// Coverage describes the schedule for a snapshot of a trace that started at a moment. The zero
// value means continuous probing.
func (s *Schedule) Coverage(started uint64) growth.HeapCoverage {
	var coverage growth.HeapCoverage
	var factors, ended float64
	for i, p := range s.Periods {
		if !p.Burst {
			continue
		}

		if coverage.Bursts == 0 {
			coverage.Since = time.Duration(max(p.From, started) - started)
		}
		coverage.Bursts++
		if p.To != 0 {
			coverage.Open += time.Duration(p.To - p.From)
			factors += s.Extrapolation(i, 0)
			ended++
		}
	}

	if coverage.Bursts > 0 {
		coverage.Lag, coverage.Extrapolation = s.Lag, factors/max(ended, 1)
		coverage.Slowdown, _ = s.slowdown()
	}
	return coverage
}

// Maturity returns the lag for a trace of a duration; 0: without a known end. Most short-lived
// objects are freed within a minute. A short trace cannot wait that long, and takes a fifth of its
// duration.
func Maturity(duration time.Duration) time.Duration {
	const shortest, longest = 10 * time.Second, time.Minute
	if duration == 0 {
		return longest
	}
	return min(max(duration/5, shortest), longest)
}

// Progress counts the work of the traced processes in some time.
type Progress struct {
	seconds float64
	steps   float64 // of training
	native  float64 // CPU time of their own, in seconds
	probes  float64 // CPU time of the probes, in seconds
}

// Add adds the progress from one reading to the next.
func (p *Progress) Add(costs controller.Costs, from, to controller.Reading) {
	native, probes := costs.Native(from, to)
	p.seconds += max(0, (to.At - from.At).Seconds())
	p.steps += max(0, float64(to.Steps-from.Steps))
	p.native += native.Seconds()
	p.probes += probes.Seconds()
}

const (
	// minStepsForSlowdown is needed, inside and outside bursts, to compare the rates of steps.
	minStepsForSlowdown = 30
	// relCostError is the relative standard error of the calibrated costs of probes. On a machine
	// with four programs a core they were 1.3 to 1.8 times as high.
	relCostError = 0.35
	// maxSlowdown bounds the factor by which probes are taken to slow the program down, if nothing
	// but CPU time shows it.
	maxSlowdown = 50
)

// slowdown returns the program's rate of work outside bursts as a multiple of that inside, and its
// relative standard error. Steps show it, and the growth of the resident heap: it is the mean of
// both. Without steps CPU time shows the most that it can be: work paced by a clock is not slowed.
func (s *Schedule) slowdown() (factor, relError float64) {
	factor, relError = s.slowdownByProgress()
	switch {
	case s.calibration.relError == 0: // not known
	case s.hasSteps():
		factor, relError = s.calibration.combined(factor, relError)
	default:
		factor, relError = s.calibration.atMost(s.mostByCPUTime())
	}
	return factor, min(relError, 1)
}

func (s *Schedule) hasSteps() bool {
	return s.Inside.steps >= minStepsForSlowdown && s.Outside.steps >= minStepsForSlowdown
}

// slowdownByProgress returns the slowdown, at least 1, by the progress inside and outside of bursts.
// Work is counted in steps of training where there are enough, with the error of a ratio of Poisson
// counts, √(1/inside + 1/outside). Otherwise it is counted in CPU time of the program's own, with
// the upper limit's error on a log scale. The slowdown is 1 if it is not known.
//
// Without steps it is not known what paces a program. Its factor is between 1 and the slowdown. A
// log-uniform distribution adds the error ln(slowdown)/√3.
func (s *Schedule) slowdownByProgress() (factor, relError float64) {
	in, out := &s.Inside, &s.Outside
	if !(in.seconds > 0 && out.seconds > 0) {
		return 1, 0
	}

	inside, outside := in.native/in.seconds, out.native/out.seconds
	if s.hasSteps() {
		inside, outside = in.steps/in.seconds, out.steps/out.seconds
		relError = math.Sqrt(1/in.steps + 1/out.steps)
	} else if in.probes > 0 {
		costError := relCostError * in.probes / max(in.native, in.probes/maxSlowdown)
		relError = -math.Log(max(1-costError, 1.0/maxSlowdown))
	}

	if !(outside > inside) {
		return 1, relError
	}
	factor = min(maxSlowdown, outside/max(inside, outside/maxSlowdown))
	if !s.hasSteps() {
		relError = math.Hypot(relError, math.Log(factor)/math.Sqrt(3))
	}
	return factor, relError
}

// mostByCPUTime returns an upper limit of the slowdown: the CPU time of the program's own in bursts
// may be less by three standard errors of the probes' CPU time.
func (s *Schedule) mostByCPUTime() float64 {
	in, out := &s.Inside, &s.Outside
	inside := max(in.native-3*relCostError*in.probes, in.probes/maxCalibration) / in.seconds
	if !(inside > 0) {
		return maxCalibration
	}
	return max(1, out.native/out.seconds/inside)
}
